-- Acquires locks, all or none, or joins the queue of the one that is taken. An owner that holds its lock keeps its count, so a
-- repeated request changes nothing. Times are in milliseconds.
--   taken    the place of the lock that another owner has, from 0; NULL if every owner holds its lock
--   fences   of the grants; or, if a lock is taken, the fences up to which earlier grants have ended, or 0 where the owner has the lock
--   wanted   others wait for one of the locks
--   ttl      the rest of the lease of the lock that is taken
--   queued   0 not in the queue, 1 behind others, 2 the first waiter, 3 the lock admits the owner, which asks again because the
--            waiters before it may be gone
--   differs  `<n>/<number>`: another holder of the n-th lock, from 0, has this number of permits, and the owner another one
CREATE FUNCTION rlock.acquire(
  keys text[], owners text[], lease bigint, retention bigint, waits boolean, floor bigint,
  OUT taken integer, OUT fences bigint[], OUT wanted boolean, OUT ttl bigint, OUT queued integer, OUT differs text
) LANGUAGE plpgsql AS $$
DECLARE
  r rlock.request := rlock.enter(keys, true, retention, floor);
  ends timestamptz := r.now + lease * interval '1 ms';
  held boolean[];
  was_taken boolean;
  k text;
  o text;
BEGIN
  IF cardinality(keys) = 1 AND rlock.mode(owners[1]) = 'exclusive' THEN
    -- The usual case: no holders and no waiters.
    UPDATE rlock.lock SET fence = greatest(fence + 1, r.fence), kept_until = greatest(kept_until, rlock.kept(ends, r))
    WHERE key = keys[1] AND NOT EXISTS (SELECT FROM rlock.holder WHERE key = keys[1])
      AND NOT EXISTS (SELECT FROM rlock.waiter WHERE key = keys[1])
    RETURNING ARRAY[fence], false INTO fences, wanted;
    IF FOUND THEN
      INSERT INTO rlock.holder (key, owner, expires_at) VALUES (keys[1], owners[1], ends);
      RETURN;
    END IF;
  END IF;

  PERFORM rlock.tidy(keys, owners, r);
  -- Finds a lock that does not admit its owner, or whose waiters precede it.
  FOR n IN 1 .. cardinality(keys) LOOP
    held[n] := rlock.holds(keys[n], owners[n]);
    IF NOT held[n] AND NOT rlock.lets_in(keys[n], owners[n], NULL) THEN
      taken := n;
      EXIT;
    END IF;
  END LOOP;
  was_taken := taken IS NOT NULL;
  FOR n IN 1 .. cardinality(keys) LOOP
    EXIT WHEN was_taken;
    IF NOT held[n] AND rlock.hand_off(keys[n], owners[n], waits, r) THEN
      taken := n;
      EXIT;
    END IF;
  END LOOP;

  IF taken IS NULL THEN
    FOR n IN 1 .. cardinality(keys) LOOP
      fences[n] := rlock.grant_to(keys[n], owners[n], ends, r);
    END LOOP;
    FOR n IN 1 .. cardinality(keys) LOOP
      IF rlock.mode(owners[n]) <> 'exclusive' THEN
        -- Others that waited share the lock.
        PERFORM rlock.hand_off(keys[n], NULL, false, r);
      END IF;
    END LOOP;
    wanted := EXISTS (SELECT FROM rlock.waiter WHERE key = ANY (keys));
  ELSE
    k := keys[taken];
    o := owners[taken];
    -- A permit is free as soon as one lease has ended.
    SELECT ceil(extract(epoch FROM CASE
      WHEN rlock.mode(o) = 'permits' AND every(rlock.mode(owner) = 'permits') THEN min(expires_at) - r.now
      ELSE max(expires_at) - r.now
    END) * 1000) INTO ttl FROM rlock.holder WHERE key = k;
    FOR n IN 1 .. taken - 1 LOOP
      -- This request does not acquire the free locks, which may have other waiters.
      IF NOT EXISTS (SELECT FROM rlock.holder WHERE key = keys[n]) THEN
        PERFORM rlock.hand_off(keys[n], NULL, false, r);
      END IF;
    END LOOP;
    IF waits THEN
      INSERT INTO rlock.waiter (key, owner, since) VALUES (k, o, r.now) ON CONFLICT (key, owner) DO NOTHING;
      IF current_setting('rlock_client.polls', true) = 'on' THEN
        UPDATE rlock.waiter SET polls_until = r.now + 2 * interval '{GRACE} ms' WHERE key = k AND owner = o;
      END IF;
    END IF;
    IF was_taken AND waits AND rlock.most(rlock.first_waiter(k)) < rlock.most(o) THEN
      -- The first waiters go by this number.
      PERFORM rlock.hand_off(k, NULL, false, r);
    ELSIF was_taken AND cardinality(keys) = 1 THEN
      -- Only a grant has to survive a crash, and this request has made none.
      SET LOCAL synchronous_commit = off;
    END IF;
    queued := CASE
      WHEN NOT waits THEN 0
      WHEN rlock.first_waiter(k) = o THEN 2
      WHEN NOT was_taken AND rlock.lets_in(k, o, NULL) AND (rlock.kept_out(k) = o OR rlock.last_waiter(k) = o) THEN 3
      ELSE 1
    END;
    IF was_taken AND queued IN (0, 2) THEN
      PERFORM rlock.ask_holders(k, NOT waits);
    END IF;
    fences := ARRAY(
      SELECT CASE WHEN rlock.holds(one.key, one.owner) THEN 0 ELSE lock.fence END
      FROM unnest(keys, owners) WITH ORDINALITY one (key, owner, n) JOIN rlock.lock ON lock.key = one.key ORDER BY n
    );
    taken := taken - 1;
  END IF;
  FOR n IN 1 .. cardinality(keys) LOOP
    IF rlock.mode(owners[n]) = 'permits' THEN
      SELECT owner INTO o FROM rlock.holder WHERE key = keys[n] ORDER BY expires_at LIMIT 1;
      differs := coalesce(differs, CASE WHEN rlock.most(o) <> rlock.most(owners[n]) THEN (n - 1) || '/' || rlock.most(o) END);
    END IF;
  END LOOP;
END $$;

-- Tells the holders of a lock that another client waits for it, or only `tries` to get it, which ends their retentions.
CREATE FUNCTION rlock.ask_holders(k text, tries boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  o text;
BEGIN
  FOR o IN
    -- Permits are never retained.
    SELECT owner FROM rlock.holder WHERE key = k AND owner NOT LIKE 'kept%' AND rlock.mode(owner) <> 'permits'
    ORDER BY place LIMIT {MOST_NOTIFIED}
  LOOP
    PERFORM rlock.notify(k, o, CASE WHEN tries AND rlock.mode(o) = 'shared' THEN '' ELSE 'wanted' END, 0);
  END LOOP;
END $$;
