-- Makes the exclusive lock of an owner, which ends with `s`, a shared one, and lets in the first waiters that share it. Returns
-- whether the owner holds the lock. `known`: the last known fence.
CREATE FUNCTION rlock.downgrade(k text, o text, known bigint, retention bigint, floor bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r rlock.request := rlock.enter(ARRAY[k], false, retention, floor);
BEGIN
  PERFORM rlock.tidy(ARRAY[k], ARRAY[o], r);
  IF NOT rlock.holds(k, o) THEN
    RETURN false;
  END IF;
  -- Those who join it have no smaller fence.
  UPDATE rlock.lock SET fence = known WHERE key = k AND fence < known;
  PERFORM rlock.hand_off(k, NULL, false, r);
  RETURN true;
END $$;
