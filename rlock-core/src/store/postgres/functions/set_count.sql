-- Sets the count of an owner's entries, and keeps its lock for another lease (ms) at least. Returns whether the owner holds it.
-- The count is absolute, so a repeated request changes nothing.
CREATE FUNCTION rlock.set_count(k text, o text, entries integer, lease bigint, retention bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r rlock.request := rlock.enter(ARRAY[k], false, retention, 0);
  ends timestamptz := r.now + lease * interval '1 ms';
BEGIN
  UPDATE rlock.holder SET count = entries, expires_at = greatest(expires_at, ends)
  WHERE key = k AND owner = o AND expires_at > r.now;
  IF FOUND THEN
    PERFORM rlock.keep(k, ends, 0, r);
    RETURN true;
  END IF;
  RETURN false;
END $$;
