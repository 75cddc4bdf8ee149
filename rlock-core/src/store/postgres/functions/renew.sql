-- Extends the leases (ms) of locks that their owners still hold; 0 leaves them as they are. Never grants a lock, nor shortens a lease.
-- Returns for each lock: 0 not held, 1 held, or its new fence; negative if others wait for it. A lock gets a new fence only if its
-- last one is below the one in `known`.
CREATE FUNCTION rlock.renew(keys text[], owners text[], known bigint[], lease bigint, retention bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  -- If another transaction keeps a row locked for longer than this, the client renews each lock by itself, within its lease.
  row_wait text := set_config('lock_timeout', greatest(50, least(250, lease / 12))::text, true);
  r rlock.request := rlock.enter(keys, false, retention, 0);
  ends timestamptz := r.now + lease * interval '1 ms';
BEGIN
  PERFORM rlock.tidy(keys, owners, r);
  UPDATE rlock.holder SET expires_at = ends FROM unnest(keys, owners) one (k, o)
  WHERE key = k AND owner = o AND lease > 0 AND expires_at < ends;
  UPDATE rlock.lock SET kept_until = rlock.kept(ends, r) WHERE key = ANY (keys) AND kept_until < rlock.kept(ends, r);
  RETURN ARRAY(
    SELECT CASE
      WHEN owner IS NULL THEN 0
      -- Another owner of the same lock may have got it a new one.
      WHEN fence < one.known THEN coalesce(rlock.next_fence(k, ends, one.known, r), 1)
      ELSE 1
    END * CASE WHEN EXISTS (SELECT FROM rlock.waiter WHERE waiter.key = k) THEN -1 ELSE 1 END
    FROM unnest(keys, owners, known) WITH ORDINALITY one (k, o, known, n)
      LEFT JOIN rlock.lock ON lock.key = k LEFT JOIN rlock.holder ON holder.key = k AND owner = o
    ORDER BY n
  );
END $$;
