-- Finds the locks and clients of the server, and passes messages from client to client.

-- Returns the names of the locks that begin with a prefix.
CREATE FUNCTION rlock.held(prefix text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT DISTINCT key FROM rlock.holder WHERE starts_with(key, prefix) AND expires_at > clock_timestamp();
END $$;

-- Sends a message, in parts that fit into a notification, to a client. Returns whether the client listens.
CREATE FUNCTION rlock.publish(client text, parts text[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  part text;
BEGIN
  IF NOT rlock.listens(client) THEN
    RETURN false;
  END IF;
  FOREACH part IN ARRAY parts LOOP
    PERFORM pg_notify('rlock:' || client, part);
  END LOOP;
  RETURN true;
END $$;
