-- Returns the holders of a lock, with how many permits they take, and the owners that wait for it. `holders` is 0 if the lock is free. Locks no row.
CREATE FUNCTION rlock.inspect(
  k text,
  OUT owners text[], OUT holders integer, OUT permits_taken bigint, OUT entries integer, OUT ttl bigint, OUT last_fence bigint,
  OUT queue text[]
) LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
BEGIN
  -- One statement, because a later one may not find the same holders.
  SELECT array_agg(owner ORDER BY place), count(*), coalesce(sum(rlock.takes(owner)), 0), (array_agg(count ORDER BY place))[1],
    floor(extract(epoch FROM max(expires_at) - now) * 1000)
  INTO owners, holders, permits_taken, entries, ttl FROM rlock.holder WHERE key = k AND expires_at > now;
  SELECT fence INTO last_fence FROM rlock.lock WHERE key = k;
  owners := owners[1:{MOST_SHOWN}];
  queue := ARRAY(SELECT owner FROM rlock.waiter WHERE key = k ORDER BY place LIMIT {MOST_SHOWN});
END $$;
