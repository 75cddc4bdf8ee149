-- What the server stores of each lock. A holder or a waiter belongs to a row of `lock`, which each request locks before it
-- reads or changes them; so requests for one key run one after the other.
CREATE TABLE rlock.lock (
  key text COLLATE "C" PRIMARY KEY,
  -- The last fence, or one that is smaller than the first one.
  fence bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * {FENCES_A_SECOND}) - 1
    CHECK (fence < {TOO_LARGE_FENCE}),
  -- The row may go after this time, a whole minute: most grants leave the indexed column as it is, which makes them cheap.
  kept_until timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX lock_kept_until ON rlock.lock (kept_until);

-- The owners of a lock. Its last character says the mode of an owner: a digit (exclusive), `s` (shared), or `p` behind the
-- number of permits, which stands behind the number that it takes if that is more than one.
CREATE TABLE rlock.holder (
  key text COLLATE "C" REFERENCES rlock.lock ON DELETE CASCADE,
  owner text COLLATE "C",
  count integer NOT NULL DEFAULT 1,
  expires_at timestamptz NOT NULL,
  place bigint GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (key, owner)
) WITH (fillfactor = 50);

-- The owners that wait for a lock, in the order of their places.
CREATE TABLE rlock.waiter (
  key text COLLATE "C" REFERENCES rlock.lock ON DELETE CASCADE,
  place bigint GENERATED ALWAYS AS IDENTITY,
  owner text COLLATE "C" NOT NULL,
  since timestamptz NOT NULL,
  -- A waiter that polls asks again before this time, unless its client is gone. NULL: it is notified.
  polls_until timestamptz,
  PRIMARY KEY (key, place),
  UNIQUE (key, owner)
);

-- What all parts of a request share: its time, how long fences are kept after a lease, and the least value of a new fence.
CREATE TYPE rlock.request AS (now timestamptz, retention interval, fence bigint);
