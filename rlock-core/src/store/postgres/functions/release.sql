-- Releases a lock, which goes to its first waiters, or takes an owner that only waits out of the queue. Returns whether the
-- owner held the lock. `known`: the last known fence. `min_hold` (ms): how long the lock stays taken without an owner.
CREATE FUNCTION rlock.release(k text, o text, known bigint, min_hold bigint, retention bigint, floor bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r rlock.request := (rlock.enter(ARRAY[k], false), retention * interval '1 ms', floor);
  first text := rlock.first_waiter(k);
  ends timestamptz := r.now + min_hold * interval '1 ms';
  held boolean;
BEGIN
  PERFORM rlock.share(k, o);
  IF min_hold > 0 THEN
    -- The lock has no owner any more, so a late renewal or release finds none.
    UPDATE rlock.holder SET
      owner = CASE rlock.mode(o) WHEN 'exclusive' THEN 'kept' ELSE 'kept:' || o END, count = 1, expires_at = ends
    WHERE key = k AND owner = o;
    held := FOUND;
  ELSE
    held := rlock.leave(k, o);
    IF first IS NULL THEN
      -- If a crash undoes the release, the lease ends the lock. No later grant survives a crash without it.
      PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
  END IF;
  IF held THEN
    UPDATE rlock.lock SET fence = known WHERE key = k AND fence < known;
    PERFORM rlock.keep(k, ends, r);
  ELSE
    DELETE FROM rlock.waiter WHERE key = k AND owner = o;
  END IF;
  IF held AND min_hold > 0 THEN
    PERFORM rlock.ask_first(k, min_hold, r.now);
  ELSIF held AND first IS NOT NULL THEN
    PERFORM rlock.hand_off(k, NULL, false, r);
  ELSIF first = o THEN
    -- The waiters behind it may share the lock. Otherwise the next one asks, and learns that it is the first.
    IF EXISTS (SELECT FROM rlock.holder WHERE key = k) THEN
      PERFORM rlock.hand_off(k, NULL, false, r);
    END IF;
    PERFORM rlock.ask_first(k, min_hold, r.now);
  END IF;
  RETURN held;
END $$;
