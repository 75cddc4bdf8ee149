-- Extends the leases (ms) of locks that their owners still hold; 0 leaves them as they are. Never grants a lock, nor shortens a lease.
-- Returns for each lock: 0 not held, 1 held, or its new fence; negative if others wait for it. A lock gets a new fence only if its
-- last one is below the one in `known`.
CREATE FUNCTION rlock.renew(keys text[], owners text[], known bigint[], lease bigint, retention bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  r rlock.request := (rlock.enter(keys, false), retention * interval '1 ms', 0);
  ends timestamptz := r.now + lease * interval '1 ms';
  replies bigint[] := '{}';
BEGIN
  FOR n IN 1 .. cardinality(keys) LOOP
    PERFORM rlock.share(keys[n], owners[n]);
    IF lease > 0 THEN
      UPDATE rlock.holder SET expires_at = greatest(expires_at, ends) WHERE key = keys[n] AND owner = owners[n];
    ELSE
      PERFORM FROM rlock.holder WHERE key = keys[n] AND owner = owners[n];
    END IF;
    replies[n] := CASE WHEN FOUND THEN 1 ELSE 0 END;
    CONTINUE WHEN NOT FOUND;
    IF EXISTS (SELECT FROM rlock.lock WHERE key = keys[n] AND fence < known[n]) THEN
      replies[n] := rlock.next_fence(keys[n], ends, known[n], r);
    ELSE
      PERFORM rlock.keep(keys[n], ends, r);
    END IF;
    IF rlock.first_waiter(keys[n]) IS NOT NULL THEN
      replies[n] := -replies[n];
    END IF;
  END LOOP;
  RETURN replies;
END $$;
