-- Reads and changes the holders of a lock. Each request calls `enter` first, and then `tidy`, unless it is a usual case without it.

-- Locks the rows of these keys, in their order, so that requests for several keys do not wait for each other in a circle. Returns
-- what the parts of the request share, with the time after the wait for the rows.
CREATE FUNCTION rlock.enter(keys text[], creates boolean, retention bigint, floor bigint)
RETURNS rlock.request LANGUAGE plpgsql AS $$
DECLARE
  ordered text[] := keys;
  k text;
  now timestamptz;
  clock bigint;
  is_new boolean := false;
BEGIN
  IF cardinality(keys) > 1 THEN
    ordered := ARRAY(SELECT one COLLATE "C" FROM unnest(keys) one ORDER BY 1);
  END IF;
  FOREACH k IN ARRAY ordered LOOP
    LOOP
      PERFORM FROM rlock.lock WHERE key = k FOR UPDATE;
      EXIT WHEN FOUND OR NOT creates;
      INSERT INTO rlock.lock (key, kept_until) VALUES (k, clock_timestamp() + interval '1 minute') ON CONFLICT DO NOTHING;
      is_new := is_new OR FOUND;
      EXIT WHEN FOUND;
    END LOOP;
  END LOOP;
  now := clock_timestamp();
  IF is_new THEN
    -- Each new row removes more than one row that is not needed any more, but none of this request, which does not skip its own
    -- locks. The request waits for no row after this.
    DELETE FROM rlock.lock WHERE key IN (
      SELECT key FROM rlock.lock WHERE kept_until < now AND key <> ALL (keys) ORDER BY kept_until LIMIT 3 FOR UPDATE SKIP LOCKED
    );
  END IF;
  clock := floor(extract(epoch FROM now) * {FENCES_A_SECOND});
  -- The floor counts only if the clock is behind it: otherwise clients with quick replies would make fences run ahead.
  RETURN (now, retention * interval '1 ms', greatest(clock, CASE WHEN floor > clock THEN floor + {FENCES_A_SECOND} END));
END $$;

-- Removes the holders whose leases have ended, and makes the lock of a shared owner shared if it was taken exclusively.
CREATE FUNCTION rlock.tidy(keys text[], owners text[], r rlock.request) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rlock.holder WHERE key = ANY (keys) AND expires_at <= r.now;
  IF owners::text LIKE '%s%' THEN
    UPDATE rlock.holder SET owner = o, count = 1 FROM unnest(keys, owners) one (k, o)
    WHERE key = k AND owner = left(o, -1) AND rlock.mode(o) = 'shared';
  END IF;
END $$;

CREATE FUNCTION rlock.mode(owner text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE right(owner, 1) WHEN 's' THEN 'shared' WHEN 'p' THEN 'permits' ELSE 'exclusive' END
$$;

-- Returns how many permits there are, as this owner says.
CREATE FUNCTION rlock.most(owner text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT substring(owner FROM '\.(\d+)p$')::bigint
$$;

-- Returns how many permits this owner takes.
CREATE FUNCTION rlock.takes(owner text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE right(owner, 1) WHEN 'p' THEN coalesce(substring(owner FROM '\.(\d+)\.\d+p$')::bigint, 1) ELSE 0 END
$$;

-- Returns whether an owner may hold a lock together with the present holders. `number`: there are at least this many permits.
CREATE FUNCTION rlock.admits(k text, o text, number bigint DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  mode text := rlock.mode(o);
  present text;
BEGIN
  SELECT rlock.mode(owner) INTO present FROM rlock.holder WHERE key = k LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;
  ELSIF mode = 'permits' AND present = mode THEN
    RETURN (SELECT sum(rlock.takes(owner)) FROM rlock.holder WHERE key = k) + rlock.takes(o) <= greatest(number, rlock.most(o));
  END IF;
  RETURN mode = 'shared' AND present = mode;
END $$;

CREATE FUNCTION rlock.holds(k text, o text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM rlock.holder WHERE key = k AND owner = o);
END $$;

-- Takes a lock from an owner. Returns whether the owner held it.
CREATE FUNCTION rlock.leave(k text, o text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rlock.holder WHERE key = k AND owner = o;
  RETURN FOUND;
END $$;

-- Returns until when the row of a lock, and so its last fence, is kept if a lease ends at this time.
CREATE FUNCTION rlock.kept(ends timestamptz, r rlock.request) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT date_trunc('minute', ends + r.retention) + interval '1 minute'
$$;

-- Keeps the last fence of a lock for the retention after this time, and raises it to `known`.
CREATE FUNCTION rlock.keep(k text, ends timestamptz, known bigint, r rlock.request) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rlock.lock SET fence = greatest(fence, known), kept_until = greatest(kept_until, rlock.kept(ends, r))
  WHERE key = k AND (fence < known OR kept_until < rlock.kept(ends, r));
END $$;

-- Sets the next fence of a lock, and returns it: larger than the last fence, and not below `known`. If `known` is not 0, it does so
-- only if the last fence is below it, and returns NULL otherwise.
CREATE FUNCTION rlock.next_fence(k text, ends timestamptz, known bigint, r rlock.request) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  given bigint;
BEGIN
  UPDATE rlock.lock SET fence = greatest(fence + 1, r.fence, known), kept_until = greatest(kept_until, rlock.kept(ends, r))
  WHERE key = k AND (known = 0 OR fence < known) RETURNING fence INTO given;
  RETURN given;
END $$;

-- Gives an owner a lock that admits it, or that it has already. Returns the fence. A lease only grows.
CREATE FUNCTION rlock.grant_to(k text, o text, ends timestamptz, r rlock.request) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO rlock.holder AS had (key, owner, expires_at) VALUES (k, o, ends) ON CONFLICT (key, owner) DO NOTHING;
  IF NOT FOUND THEN
    UPDATE rlock.holder SET expires_at = greatest(expires_at, ends) WHERE key = k AND owner = o;
    IF rlock.mode(o) = 'exclusive' THEN
      -- A repeated request, or one that follows a hand-off.
      PERFORM rlock.keep(k, ends, 0, r);
      RETURN (SELECT fence FROM rlock.lock WHERE key = k);
    END IF;
  END IF;
  RETURN rlock.next_fence(k, ends, 0, r);
END $$;
