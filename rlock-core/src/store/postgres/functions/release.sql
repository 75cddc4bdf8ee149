-- Releases a lock, which goes to its first waiters, or takes an owner that only waits out of the queue. Returns whether the
-- owner held the lock. `known`: the last known fence. `min_hold` (ms): how long the lock stays taken without an owner.
CREATE FUNCTION rlock.release(k text, o text, known bigint, min_hold bigint, retention bigint, floor bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r rlock.request := rlock.enter(ARRAY[k], false, retention, floor);
  ends timestamptz := r.now + min_hold * interval '1 ms';
  first text;
  held boolean;
BEGIN
  IF min_hold = 0 THEN
    -- The usual case: no owner waits.
    DELETE FROM rlock.holder
    WHERE key = k AND owner = o AND expires_at > r.now AND NOT EXISTS (SELECT FROM rlock.waiter WHERE key = k);
    IF FOUND THEN
      -- Otherwise the row needs no change: since its grant or last renewal, it is kept for longer than this.
      IF known > 0 THEN
        PERFORM rlock.keep(k, ends, known, r);
      END IF;
      -- If a crash undoes the release, the lease ends the lock. No later grant survives a crash without it.
      SET LOCAL synchronous_commit = off;
      RETURN true;
    END IF;
  END IF;
  PERFORM rlock.tidy(ARRAY[k], ARRAY[o], r);
  IF min_hold > 0 THEN
    -- The lock has no owner any more, so a late renewal or release finds none.
    UPDATE rlock.holder SET
      owner = CASE rlock.mode(o) WHEN 'exclusive' THEN 'kept' ELSE 'kept:' || o END, count = 1, expires_at = ends
    WHERE key = k AND owner = o;
    held := FOUND;
  ELSE
    held := rlock.leave(k, o);
  END IF;
  first := rlock.first_waiter(k);
  IF held THEN
    PERFORM rlock.keep(k, ends, known, r);
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
