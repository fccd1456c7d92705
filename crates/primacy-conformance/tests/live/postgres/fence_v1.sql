-- The fence of version 1, whose guard lends every writer its owner's rights, as `primacy fence print` printed it.
-- The fence of Primacy for PostgreSQL 12 and later; docs/fencing.md says how to use it.
-- It may be run again at any time, and changes nothing then.
BEGIN;
SELECT pg_advisory_xact_lock(1347571033, 0);

CREATE TABLE IF NOT EXISTS "public".primacy_fence(
    election text COLLATE "C" PRIMARY KEY,
    highest bigint NOT NULL CHECK (highest >= 0)
);
REVOKE ALL ON "public".primacy_fence FROM PUBLIC;
GRANT SELECT ON "public".primacy_fence TO PUBLIC;

-- Not for those who mean it: they can drop it. For those who repair something by hand.
CREATE OR REPLACE FUNCTION "public".primacy_fence_keeps() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $primacy$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.election = OLD.election AND NEW.highest >= OLD.highest THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'PRM04', MESSAGE = 'primacy: the highest token never goes down, and is never forgotten';
END $primacy$;
DO $primacy$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('"public"' || '.primacy_fence') AND tgname = 'primacy_keeps') THEN
        CREATE TRIGGER primacy_keeps BEFORE UPDATE OR DELETE ON "public".primacy_fence
            FOR EACH ROW EXECUTE FUNCTION "public".primacy_fence_keeps();
        CREATE TRIGGER primacy_keeps_all BEFORE TRUNCATE ON "public".primacy_fence
            FOR EACH STATEMENT EXECUTE FUNCTION "public".primacy_fence_keeps();
    END IF;
END $primacy$;

-- Admits a token until the end of the transaction, or refuses it. Transactions of the highest token hold a lock together; one that
-- raises it holds the lock alone. So it waits for those under way, and a lower one waits until it is known whether it was raised.
-- Called by the two functions below only, with their rights.
CREATE OR REPLACE FUNCTION "public".primacy_admit(of_election text, shown bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $primacy$
DECLARE
    seen bigint;
BEGIN
    SELECT highest INTO seen FROM "public".primacy_fence WHERE election = of_election;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PRM03',
            MESSAGE = format('primacy: no fence is installed for the election %s', of_election),
            HINT = 'Install it with: primacy fence install --store URL --election NAME --table TABLE';
    END IF;
    IF shown > seen THEN
        -- At once alone: two that held it together and each wanted it alone would wait for each other.
        PERFORM pg_advisory_xact_lock(1347571033, hashtext(of_election));
        UPDATE "public".primacy_fence SET highest = shown WHERE election = of_election AND highest < shown;
    ELSE
        PERFORM pg_advisory_xact_lock_shared(1347571033, hashtext(of_election));
    END IF;
    -- Under the lock the answer stays true. Only at this level of isolation does a statement see what was committed while the
    -- transaction waited; at the others, locking the row fails if somebody has raised it since.
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        SELECT highest INTO seen FROM "public".primacy_fence WHERE election = of_election;
    ELSE
        SELECT highest INTO seen FROM "public".primacy_fence WHERE election = of_election FOR SHARE;
    END IF;
    IF shown < seen THEN
        RAISE EXCEPTION USING ERRCODE = 'PRM02',
            MESSAGE = format('primacy: the token %s of the election %s is stale: a leader with token %s has been here; stop, another leads',
                shown, of_election, seen);
    END IF;
    -- For the guard's guess. A rollback takes it back.
    PERFORM set_config('primacy.admitted', concat('"public"', ' ', shown, ' ', of_election), false);
END $primacy$;
REVOKE ALL ON FUNCTION "public".primacy_admit(text, bigint) FROM PUBLIC;

-- Shows a token for the rest of the transaction. A new leader calls it before it does anything else.
CREATE OR REPLACE FUNCTION "public".primacy_token(of_election text, shown bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $primacy$
BEGIN
    IF of_election IS NULL OR shown IS NULL OR shown < 0 OR strpos(of_election, E'\n') > 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'PRM05', MESSAGE = 'primacy: a token is a whole number of an election';
    END IF;
    PERFORM "public".primacy_admit(of_election, shown);
    -- The latest comes first, and those of other elections stay.
    PERFORM set_config('primacy.token', shown || ' ' || of_election
        || coalesce(E'\n' || nullif(current_setting('primacy.token', true), ''), ''), true);
END $primacy$;
REVOKE ALL ON FUNCTION "public".primacy_token(text, bigint) FROM PUBLIC;

-- The guard of a table. It trusts nothing but the fence: the token that it finds is compared in this very transaction.
-- It is called for each statement, so it is as cheap as may be: no search_path is set and put back, and each name and each operator
-- says its schema instead. What most writes meet comes first. `primacy.admitted` is a guess: that the token is the highest, because it was
-- when this session showed it to this fence before. Then the shared lock is the one that is needed, and it is taken before the one look-up, which
-- decides. A guess that has become wrong costs another look-up; one that somebody has put there, at most a deadlock, which PostgreSQL ends.
CREATE OR REPLACE FUNCTION "public".primacy_guard() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $primacy$
DECLARE
    seen bigint;
    line text;
BEGIN
    -- What follows a condition that is NULL is evaluated, and the lock must not be taken then.
    IF coalesce(pg_catalog.current_setting('primacy.admitted', true)
            OPERATOR(pg_catalog.=) pg_catalog.concat('"public"', ' ', pg_catalog.current_setting('primacy.token', true)), false)
        AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
        AND pg_catalog.pg_advisory_xact_lock_shared(1347571033, pg_catalog.hashtext(TG_ARGV[0])) IS NOT NULL THEN
        SELECT highest INTO seen FROM "public".primacy_fence WHERE election OPERATOR(pg_catalog.=) TG_ARGV[0];
        IF seen IS NOT NULL
            AND pg_catalog.current_setting('primacy.token', true) OPERATOR(pg_catalog.=) pg_catalog.concat(seen, ' ', TG_ARGV[0]) THEN
            RETURN NULL;
        END IF;
    END IF;
    FOREACH line IN ARRAY pg_catalog.string_to_array(coalesce(pg_catalog.current_setting('primacy.token', true), ''), E'\n') LOOP
        IF pg_catalog.substr(line, pg_catalog.strpos(line, ' ') OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.=) TG_ARGV[0]
            AND line OPERATOR(pg_catalog.~) '^[0-9]{1,18} ' THEN
            PERFORM "public".primacy_admit(TG_ARGV[0], pg_catalog.split_part(line, ' ', 1)::bigint);
            RETURN NULL;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'PRM01',
        MESSAGE = pg_catalog.format('primacy: no token of the election %s is shown, and the table %I is guarded', TG_ARGV[0], TG_TABLE_NAME),
        HINT = pg_catalog.format('In the same transaction, before the write: SET LOCAL primacy.token = ''TOKEN %s'';', TG_ARGV[0]);
END $primacy$;
-- Else anybody could put it on a table of their own, and show a number there that is far too high. A trigger that is there runs all the same.
REVOKE ALL ON FUNCTION "public".primacy_guard() FROM PUBLIC;

INSERT INTO "public".primacy_fence(election, highest) VALUES ('orders', 0) ON CONFLICT DO NOTHING;
GRANT USAGE ON SCHEMA "public" TO "app";
GRANT EXECUTE ON FUNCTION "public".primacy_token(text, bigint) TO "app";

-- The table, its partitions, and what inherits from it: a statement runs the guard of the table that it names.
DO $primacy$
DECLARE
    guarded regclass;
    kind "char";
    theirs text;
    called oid;
    outside regclass;
BEGIN
    WITH RECURSIVE tree(relation) AS (
        SELECT 'ledger'::regclass::oid
        UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = relation
    )
    SELECT inhparent::regclass INTO outside FROM tree JOIN pg_inherits ON inhrelid = relation
        WHERE inhparent NOT IN (SELECT relation FROM tree) LIMIT 1;
    IF outside IS NOT NULL THEN
        RAISE EXCEPTION 'primacy: a part of % can also be written by the name of %, and would not be guarded there; name that one',
            'ledger'::regclass, outside;
    END IF;
    FOR guarded, kind IN
        WITH RECURSIVE tree(relation) AS (
            SELECT 'ledger'::regclass::oid
            UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = relation
        )
        SELECT relation::regclass, relkind FROM tree JOIN pg_class ON pg_class.oid = relation
    LOOP
        IF kind NOT IN ('r', 'p') THEN
            RAISE EXCEPTION 'primacy: % is no table, and cannot be guarded', guarded;
        END IF;
        SELECT pg_get_triggerdef(oid), tgfoid INTO theirs, called FROM pg_trigger WHERE tgrelid = guarded AND tgname = 'primacy_guard';
        IF theirs IS NULL THEN
            EXECUTE format('CREATE TRIGGER primacy_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s '
                'FOR EACH STATEMENT EXECUTE FUNCTION %s.primacy_guard(%L)', guarded, '"public"', 'orders');
        ELSIF strpos(theirs, format('primacy_guard(%L)', 'orders')) = 0 THEN
            RAISE EXCEPTION 'primacy: % is guarded for another election: %', guarded, theirs;
        ELSIF called <> format('%s.primacy_guard()', '"public"')::regprocedure THEN
            RAISE EXCEPTION 'primacy: % is guarded by a fence in another schema: %', guarded, theirs;
        END IF;
        -- Also where session_replication_role turns ordinary triggers off, and where somebody has disabled it.
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER primacy_guard', guarded);
    END LOOP;
END $primacy$;
COMMIT;
