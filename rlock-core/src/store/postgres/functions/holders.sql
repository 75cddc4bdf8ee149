-- Reads and changes the holders of a lock. `enter` comes first in each request.

-- Locks the rows of these keys, in their order, so that requests for several keys do not wait for each other in a circle.
-- Removes the holders whose leases have ended. Returns the time, which is read after the wait for the rows.
CREATE FUNCTION rlock.enter(keys text[], creates boolean) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
  k text;
  now timestamptz;
  is_new boolean := false;
BEGIN
  FOR k IN SELECT one COLLATE "C" FROM unnest(keys) one ORDER BY 1 LOOP
    LOOP
      PERFORM FROM rlock.lock WHERE key = k FOR UPDATE;
      EXIT WHEN FOUND OR NOT creates;
      INSERT INTO rlock.lock (key, kept_until) VALUES (k, clock_timestamp() + interval '1 minute') ON CONFLICT DO NOTHING;
      is_new := is_new OR FOUND;
      EXIT WHEN FOUND;
    END LOOP;
  END LOOP;
  now := clock_timestamp();
  DELETE FROM rlock.holder WHERE key = ANY (keys) AND expires_at <= now;
  IF is_new THEN
    -- Each new row removes more than one row that is not needed any more, but none of this request, which does not skip its own
    -- locks. The request waits for no row after this.
    DELETE FROM rlock.lock WHERE key IN (
      SELECT key FROM rlock.lock WHERE kept_until < now AND key <> ALL (keys) ORDER BY kept_until LIMIT 3 FOR UPDATE SKIP LOCKED
    );
  END IF;
  RETURN now;
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

-- Makes the exclusive lock of an owner a shared one, if the owner is shared and had it.
CREATE FUNCTION rlock.share(k text, o text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF rlock.mode(o) = 'shared' THEN
    UPDATE rlock.holder SET owner = o, count = 1 WHERE key = k AND owner = left(o, -1);
  END IF;
END $$;

-- Takes a lock from an owner. Returns whether the owner held it.
CREATE FUNCTION rlock.leave(k text, o text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rlock.holder WHERE key = k AND owner = o;
  RETURN FOUND;
END $$;

-- Keeps the row of a lock, and so its last fence, for the retention after this time.
CREATE FUNCTION rlock.keep(k text, ends timestamptz, r rlock.request) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  until timestamptz := date_trunc('minute', ends + r.retention) + interval '1 minute';
BEGIN
  UPDATE rlock.lock SET kept_until = until WHERE key = k AND kept_until < until;
END $$;

-- Sets the next fence of a lock, and returns it: the server's time, but larger than the last fence and not below `known`.
CREATE FUNCTION rlock.next_fence(k text, ends timestamptz, known bigint, r rlock.request) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  clock bigint := floor(extract(epoch FROM r.now) * {FENCES_A_SECOND});
  until timestamptz := date_trunc('minute', ends + r.retention) + interval '1 minute';
  given bigint;
BEGIN
  -- The floor counts only if the clock is behind it: otherwise clients with quick replies would make fences run ahead.
  UPDATE rlock.lock SET
    fence = greatest(fence + 1, clock, known, CASE WHEN r.floor > clock THEN r.floor + {FENCES_A_SECOND} END),
    kept_until = greatest(kept_until, until)
  WHERE key = k RETURNING fence INTO given;
  RETURN given;
END $$;

-- Gives an owner a lock that admits it, or that it has already. Returns the fence. A lease only grows.
CREATE FUNCTION rlock.grant_to(k text, o text, lease interval, r rlock.request) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  ends timestamptz := r.now + lease;
BEGIN
  INSERT INTO rlock.holder AS had (key, owner, expires_at) VALUES (k, o, ends) ON CONFLICT (key, owner) DO NOTHING;
  IF NOT FOUND THEN
    UPDATE rlock.holder SET expires_at = greatest(expires_at, ends) WHERE key = k AND owner = o;
    IF rlock.mode(o) = 'exclusive' THEN
      -- A repeated request, or one that follows a hand-off.
      PERFORM rlock.keep(k, ends, r);
      RETURN (SELECT fence FROM rlock.lock WHERE key = k);
    END IF;
  END IF;
  RETURN rlock.next_fence(k, ends, 0, r);
END $$;
