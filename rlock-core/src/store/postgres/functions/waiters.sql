-- Keeps the queue of waiters, and hands a lock off to the first of them whose client listens.

-- Returns whether a client listens. Its listening session shares an advisory lock as long as it lives. So another session can
-- get this lock for itself only if the listening one has ended, and then releases it at once. The client's own sessions are not
-- tested, because the listening one would always get the lock that it shares.
CREATE FUNCTION rlock.listens(client text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  proof bigint := ('x' || replace(right(client, 17), '-', ''))::bit(64)::bigint;
BEGIN
  RETURN starts_with(current_setting('application_name'), 'rlock:' || client)
    OR CASE WHEN pg_try_advisory_lock(proof) THEN NOT pg_advisory_unlock(proof) ELSE true END;
END $$;

-- Notifies the client of an owner, if it listens, once the request is committed. Returns whether it does. `what` and `ms` are
-- one of:
--   `<fence>/<1 if others wait>` and the lease of a grant
--   `wanted` and 0
--   an empty text and the time after which to ask again, or to end a retention
CREATE FUNCTION rlock.notify(k text, o text, what text, ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF NOT rlock.listens(left(o, 36)) THEN
    RETURN false;
  END IF;
  PERFORM pg_notify('rlock:' || left(o, 36), concat(o, ' ', what, ' ', ms, ' ', k));
  RETURN true;
END $$;

-- Notifies a waiter, unless it polls, and removes it from the queue if its client is gone. Returns whether the client is there.
CREATE FUNCTION rlock.tell(k text, o text, what text, ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN rlock.notify(k, o, what, ms) OR NOT rlock.drop_silent(k, o);
END $$;

-- Removes a waiter whose client does not listen from the queue, unless it polls. Returns whether it was removed.
CREATE FUNCTION rlock.drop_silent(k text, o text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rlock.waiter WHERE key = k AND owner = o AND (polls_until > clock_timestamp()) IS NOT TRUE;
  RETURN FOUND;
END $$;

CREATE FUNCTION rlock.first_waiter(k text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT owner FROM rlock.waiter WHERE key = k ORDER BY place LIMIT 1);
END $$;

CREATE FUNCTION rlock.last_waiter(k text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT owner FROM rlock.waiter WHERE key = k ORDER BY place DESC LIMIT 1);
END $$;

-- Makes the waiter behind `skipped` others ask again after a time (ms), or the next one if its client is gone. Returns the
-- waiter.
CREATE FUNCTION rlock.ask(k text, skipped integer, after bigint) RETURNS rlock.waiter LANGUAGE plpgsql AS $$
DECLARE
  one rlock.waiter;
BEGIN
  LOOP
    SELECT * INTO one FROM rlock.waiter WHERE key = k ORDER BY place OFFSET skipped LIMIT 1;
    EXIT WHEN NOT FOUND OR rlock.tell(k, one.owner, '', after);
  END LOOP;
  RETURN one;
END $$;

-- Makes the waiter behind `skipped` others, and the last one, ask again after a time (ms).
CREATE FUNCTION rlock.ask_from(k text, skipped integer, after bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  later text := (rlock.ask(k, skipped, after)).owner;
  last text;
BEGIN
  WHILE later IS NOT NULL LOOP
    last := rlock.last_waiter(k);
    EXIT WHEN last = later OR rlock.tell(k, last, '', after);
  END LOOP;
END $$;

-- Makes the first waiter ask again after a time (ms). It may be dead by then, so the second and the last waiter ask after a
-- further grace period.
CREATE FUNCTION rlock.ask_first(k text, after bigint, now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  one rlock.waiter := rlock.ask(k, 0, after);
BEGIN
  IF now - one.since + after * interval '1 ms' > interval '{LONGEST_SILENCE} ms' THEN
    PERFORM rlock.ask_from(k, 1, after + {GRACE});
  END IF;
END $$;

-- Returns the largest number of permits that the first waiters name, or the owner that `joins` the queue.
CREATE FUNCTION rlock.most_named(k text, joins text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN greatest(rlock.most(joins), (
    SELECT max(rlock.most(owner)) FROM (SELECT owner FROM rlock.waiter WHERE key = k ORDER BY place LIMIT 1 + {MOST_LET_IN}) one
  ));
END $$;

-- Returns whether the lock admits an owner, which goes by the largest number of permits that is named if it waits.
CREATE FUNCTION rlock.lets_in(k text, o text, joins text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF rlock.admits(k, o) THEN
    RETURN true;
  END IF;
  RETURN rlock.mode(o) = 'permits' AND EXISTS (SELECT FROM rlock.waiter WHERE key = k AND owner = o)
    AND rlock.admits(k, o, rlock.most_named(k, joins));
END $$;

-- Returns the first waiter that the lock would admit if the head of the queue did not precede it, among the next {MOST_LET_IN}.
CREATE FUNCTION rlock.kept_out(k text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  present text;
  taken bigint;
  most bigint := rlock.most_named(k, NULL);
BEGIN
  SELECT min(rlock.mode(owner)), sum(rlock.takes(owner)) INTO present, taken FROM rlock.holder WHERE key = k;
  IF present IS NULL OR present = 'exclusive' THEN
    RETURN NULL;
  END IF;
  -- The holders are counted once for all waiters, as `admits` does for each.
  RETURN (
    SELECT owner FROM (SELECT owner, place FROM rlock.waiter WHERE key = k ORDER BY place OFFSET 1 LIMIT {MOST_LET_IN}) one
    WHERE rlock.mode(owner) = present AND (present = 'shared' OR taken + rlock.takes(owner) <= most)
    ORDER BY place LIMIT 1
  );
END $$;

-- Checks whether the client of the first waiter is there, if the lock does not admit this waiter but would admit the owner
-- that `asks` or a later waiter. Removes a waiter whose client is gone, and returns true. Otherwise tells the later waiter to
-- ask again soon, because the client of the first one may be gone by then.
CREATE FUNCTION rlock.passes_over(k text, head text, asks text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  enters boolean := asks IS NOT NULL AND rlock.lets_in(k, asks, NULL);
  later text := CASE WHEN NOT enters THEN rlock.kept_out(k) END;
BEGIN
  IF head = asks OR NOT enters AND later IS NULL THEN
    RETURN false;
  ELSIF NOT rlock.listens(left(head, 36)) AND rlock.drop_silent(k, head) THEN
    RETURN true;
  END IF;
  WHILE later IS NOT NULL AND NOT rlock.tell(k, later, '', {BETWEEN_PROBES}) LOOP
    later := rlock.kept_out(k);
  END LOOP;
  RETURN false;
END $$;

-- Hands a lock off to its first waiters, as long as it admits them and their clients listen, but at most to {MOST_LET_IN}.
-- Returns whether others precede the owner that `asks`, which the lock admits, and which gets no notification. `joins`: an
-- owner joins the queue after this.
CREATE FUNCTION rlock.hand_off(k text, asks text, joins boolean, r rlock.request) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  one rlock.waiter;
  served text[] := '{}';
  fences bigint[] := '{}';
  longest interval := '0';
  is_full boolean := false;
  has_to_wait boolean := false;
  wanted integer;
BEGIN
  IF rlock.first_waiter(k) IS NULL THEN
    -- The usual case. The lock admits the owner that asks, as before.
    RETURN false;
  END IF;
  LOOP
    SELECT * INTO one FROM rlock.waiter WHERE key = k ORDER BY place LIMIT 1;
    EXIT WHEN NOT FOUND;
    IF NOT rlock.lets_in(k, one.owner, CASE WHEN joins THEN asks END) THEN
      CONTINUE WHEN rlock.passes_over(k, one.owner, asks);
      has_to_wait := true;
      EXIT;
    END IF;
    IF cardinality(served) = {MOST_LET_IN} THEN
      is_full := true;
      has_to_wait := true;
      EXIT;
    END IF;
    DELETE FROM rlock.waiter WHERE key = k AND place = one.place;
    EXIT WHEN one.owner = asks;
    IF one.polls_until > r.now OR rlock.listens(left(one.owner, 36)) THEN
      fences := fences || rlock.grant_to(k, one.owner, r.now + interval '{GRACE} ms', r);
      served := served || one.owner;
      longest := greatest(longest, r.now - one.since);
    END IF;
  END LOOP;
  wanted := CASE WHEN joins OR rlock.first_waiter(k) IS NOT NULL THEN 1 ELSE 0 END;
  FOR n IN 1 .. cardinality(served) LOOP
    PERFORM rlock.notify(k, served[n], fences[n] || '/' || wanted, {GRACE});
  END LOOP;
  IF is_full THEN
    PERFORM rlock.ask(k, 0, 0);
  END IF;
  -- The new owner may be dead, so the next waiter asks after the grace period. The next one may be dead, too, so the last one
  -- asks as well: it was active most recently.
  IF longest > interval '{LONGEST_SILENCE} ms' THEN
    PERFORM rlock.ask_from(k, 0, {GRACE});
  END IF;
  RETURN has_to_wait OR asks IS NOT NULL AND one.owner IS DISTINCT FROM asks AND NOT rlock.admits(k, asks);
END $$;
