-- The fence of Primacy for PostgreSQL 12 and later; docs/fencing.md says how to use it.
-- It may be run again at any time: it brings a fence of an earlier version up to date, and otherwise changes nothing.
BEGIN;
-- Nothing here, and nothing in the functions below, may find a name in a schema in which others can make one. So every name and
-- every operator says its schema, and the path is fixed as well. Only the names of the guarded tables are looked up by the caller's path.
SELECT pg_catalog.set_config('primacy_install.path', pg_catalog.current_setting('search_path'), true),
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
    -- While this waits for a lock, all who come later wait behind it.
    pg_catalog.set_config('lock_timeout', '2s', true),
    -- What the catalog shows of the fence is compared below.
    pg_catalog.set_config('quote_all_identifiers', 'off', true);

-- The fence would belong to another role than the one that logged in, and what that role makes could act as the login. The owner of a
-- database sets the role of all sessions by ALTER DATABASE.
DO $primacy$ BEGIN
    IF :may_be_superuser AND current_user OPERATOR(pg_catalog.<>) session_user
        AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user) THEN
        RAISE EXCEPTION USING ERRCODE = 'PRM06',
            MESSAGE = pg_catalog.format('primacy: this session logged in as %s, who may be a superuser, and acts as the role %s; nothing was changed',
                session_user, current_user),
            HINT = 'Log in as the role that is to own the fence; SET ROLE, or ALTER DATABASE or ALTER ROLE … SET role, has set another.';
    END IF;
END $primacy$;

-- The functions of event triggers run, with our rights, for nearly every statement below: those of a stranger would be lent them.
DO $primacy$
DECLARE
    made pg_catalog.record;
BEGIN
    FOR made IN
        SELECT part.shown, part.owner FROM :event_triggers AS part
    LOOP
        IF NOT :trusted THEN
            RAISE EXCEPTION USING ERRCODE = 'PRM06',
                MESSAGE = pg_catalog.format('primacy: %s belongs to the role %s, and would run with the rights of %s; nothing was changed',
                    made.shown, :role, current_user),
                HINT = ':event_trigger_fix.';
        END IF;
    END LOOP;
END $primacy$;

-- Two installations at once would meet in the catalogs. Every role can take this lock, so it is not waited for without a bound.
DO $primacy$ BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', '10s', true);
    PERFORM pg_catalog.pg_advisory_xact_lock(1347571033, 0);
    PERFORM pg_catalog.set_config('lock_timeout', '2s', true);
EXCEPTION WHEN lock_not_available THEN
    NULL;
END $primacy$;

-- A guard of an earlier version admits by another lock. Its statements under way end before it is replaced, and others wait.
DO $primacy$
DECLARE
    guarded pg_catalog.regclass;
    locking pg_catalog.text;
    found_version pg_catalog.int4;
BEGIN
    SELECT coalesce(pg_catalog."substring"(prosrc, 'primacy fence version ([0-9]{1,4})')::pg_catalog.int4, 1) INTO found_version
        FROM pg_catalog.pg_proc WHERE proname OPERATOR(pg_catalog.=) 'primacy_guard'
        AND pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(:schema_text)::pg_catalog.oid;
    IF found_version OPERATOR(pg_catalog.>) :version THEN
        RAISE EXCEPTION 'primacy: the fence in the schema % has version %, and this program knows version %: use a later one',
            :schema_text, found_version, :version;
    END IF;
    IF found_version OPERATOR(pg_catalog.<) :version THEN
        FOR guarded IN
            SELECT tgrelid::pg_catalog.regclass FROM pg_catalog.pg_trigger
                JOIN pg_catalog.pg_proc ON pg_proc.oid OPERATOR(pg_catalog.=) tgfoid
                WHERE proname OPERATOR(pg_catalog.=) 'primacy_guard'
                AND pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(:schema_text)::pg_catalog.oid ORDER BY tgrelid
        LOOP
            locking := pg_catalog.format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', guarded);
            :locking
        END LOOP;
    END IF;
END $primacy$;

DO $primacy$ BEGIN
    -- Whoever may make no schema can use one that is there.
    IF pg_catalog.to_regnamespace(:schema_text) IS NULL THEN
        -- Writers need no right on it: the server finds the function of a trigger by its number, and that acts as its owner. A role
        -- that may use a schema can stop all who use a table of it, by a lock that it waits for.
        CREATE SCHEMA :schema;
    END IF;
END $primacy$;
CREATE TABLE IF NOT EXISTS :schema.primacy_fence(
    election pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
    highest pg_catalog.int8 NOT NULL CHECK (highest OPERATOR(pg_catalog.>=) 0)
);
REVOKE ALL ON :schema.primacy_fence FROM PUBLIC;
GRANT SELECT ON :schema.primacy_fence TO PUBLIC;

-- The row of its election is what a transaction holds until it ends.
CREATE TABLE IF NOT EXISTS :schema.primacy_fence_hold(
    election pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
    highest pg_catalog.int8 NOT NULL
);
REVOKE ALL ON :schema.primacy_fence_hold FROM PUBLIC;

-- Not for those who mean it: they can drop it. For those who repair something by hand.
CREATE OR REPLACE FUNCTION :schema.primacy_fence_keeps() RETURNS pg_catalog.trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $primacy$
BEGIN
    IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
        IF NEW.election OPERATOR(pg_catalog.=) OLD.election AND NEW.highest OPERATOR(pg_catalog.>=) OLD.highest THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'PRM04', MESSAGE = 'primacy: the highest token never goes down, and is never forgotten';
END $primacy$;
REVOKE ALL ON FUNCTION :schema.primacy_fence_keeps() FROM PUBLIC;

-- Whatever raises the highest token waits here for the transactions that hold the row, and keeps others waiting until it is committed.
CREATE OR REPLACE FUNCTION :schema.primacy_fence_raised() RETURNS pg_catalog.trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $primacy$
BEGIN
    UPDATE :schema.primacy_fence_hold SET highest = NEW.highest
        WHERE election OPERATOR(pg_catalog.=) NEW.election AND highest OPERATOR(pg_catalog.<) NEW.highest;
    RETURN NULL;
END $primacy$;
REVOKE ALL ON FUNCTION :schema.primacy_fence_raised() FROM PUBLIC;

-- Admits a token until the end of the transaction, or refuses it. Transactions of the highest token hold the row together. One that
-- raises the token takes the row for itself: it waits for those who hold it, and a lower token waits until it is known whether it was
-- raised. Only the owner may lock that row; an advisory lock could be taken, and kept, by every role.
-- Called by the two functions below only, with their rights.
CREATE OR REPLACE FUNCTION :schema.primacy_admit(of_election pg_catalog.text, shown pg_catalog.int8) RETURNS pg_catalog.void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $primacy$
DECLARE
    entry pg_catalog.text := pg_catalog.concat(E'\n', :schema_text, ' ', shown, ' ', of_election, E'\n');
    admitted pg_catalog.text := pg_catalog.current_setting('primacy.admitted', true);
    is_held pg_catalog.bool := coalesce(pg_catalog.strpos(admitted, entry) OPERATOR(pg_catalog.>) 0, false);
    is_raised pg_catalog.bool := false;
    seen pg_catalog.int8;
    raised_by pg_catalog.int8;
    newest pg_catalog.int8;
BEGIN
    SELECT highest, xmax::pg_catalog.text::pg_catalog.int8 INTO seen, raised_by
        FROM :schema.primacy_fence WHERE election OPERATOR(pg_catalog.=) of_election;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PRM03',
            MESSAGE = pg_catalog.format('primacy: no fence is installed for the election %s', of_election),
            HINT = 'Install it with: primacy fence install --store URL --election NAME --table TABLE';
    END IF;
    IF shown OPERATOR(pg_catalog.>) seen THEN
        -- Seen by others before it is committed, as the number of a transaction in the row that it replaces.
        UPDATE :schema.primacy_fence SET highest = shown
            WHERE election OPERATOR(pg_catalog.=) of_election AND highest OPERATOR(pg_catalog.<) shown;
    ELSIF raised_by OPERATOR(pg_catalog.<>) 0 AND NOT is_held THEN
        -- The upper half of that number is that of the newest one, or one less.
        newest := pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot());
        raised_by := raised_by OPERATOR(pg_catalog.+) (newest OPERATOR(pg_catalog.-) (newest OPERATOR(pg_catalog.%) 4294967296));
        IF raised_by OPERATOR(pg_catalog.>) (newest OPERATOR(pg_catalog.+) 2147483648) THEN
            raised_by := raised_by OPERATOR(pg_catalog.-) 4294967296;
        END IF;
        is_raised := NOT pg_catalog.txid_visible_in_snapshot(raised_by, pg_catalog.txid_current_snapshot());
    END IF;
    IF is_raised THEN
        -- It waits for its turn among those who want the row alone. Those who share it overtake who waits, and would keep a new leader out.
        SELECT highest INTO seen FROM :schema.primacy_fence_hold WHERE election OPERATOR(pg_catalog.=) of_election FOR NO KEY UPDATE;
    ELSE
        SELECT highest INTO seen FROM :schema.primacy_fence_hold WHERE election OPERATOR(pg_catalog.=) of_election FOR SHARE;
    END IF;
    IF seen IS NULL OR shown OPERATOR(pg_catalog.<) seen THEN
        RAISE EXCEPTION USING ERRCODE = 'PRM02',
            MESSAGE = pg_catalog.format('primacy: the token %s of the election %s is stale: a leader with token %s has been here; stop, another leads',
                shown, of_election, seen);
    END IF;
    IF NOT is_held THEN
        -- For the guard's guess. It goes with the transaction, as the lock does, and with a savepoint that is rolled back.
        PERFORM pg_catalog.set_config('primacy.admitted', pg_catalog.concat(entry, admitted), true);
    END IF;
END $primacy$;
REVOKE ALL ON FUNCTION :schema.primacy_admit(pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

-- Shows a token for the rest of the transaction. A new leader calls it before it does anything else.
CREATE OR REPLACE FUNCTION :schema.primacy_token(of_election pg_catalog.text, shown pg_catalog.int8) RETURNS pg_catalog.void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $primacy$
BEGIN
    IF of_election IS NULL OR shown IS NULL OR shown OPERATOR(pg_catalog.<) 0
        OR pg_catalog.strpos(of_election, E'\n') OPERATOR(pg_catalog.>) 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'PRM05', MESSAGE = 'primacy: a token is a whole number of an election';
    END IF;
    PERFORM :schema.primacy_admit(of_election, shown);
    -- The latest comes first, and those of other elections stay.
    PERFORM pg_catalog.set_config('primacy.token',
        pg_catalog.rtrim(pg_catalog.concat(shown, ' ', of_election, E'\n', pg_catalog.current_setting('primacy.token', true)), E'\n'), true);
END $primacy$;
REVOKE ALL ON FUNCTION :schema.primacy_token(pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

-- The guard of a table. It runs with its owner's rights, which it needs to lock and raise; so no name in it may be looked up by the
-- writer's path, types included. It trusts nothing but the fence: the token that it finds is compared in this very transaction.
-- What most writes meet comes first. `primacy.admitted` is a guess: that this transaction was admitted with this token before. Then it
-- holds the row, and the look-up decides. A guess that somebody has put there costs no more than another look-up, or a deadlock, which
-- PostgreSQL ends.
CREATE OR REPLACE FUNCTION :schema.primacy_guard() RETURNS pg_catalog.trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $primacy$
-- primacy fence version :version
DECLARE
    shown pg_catalog.text := pg_catalog.current_setting('primacy.token', true);
    seen pg_catalog.int8;
    line pg_catalog.text;
BEGIN
    IF pg_catalog.strpos(pg_catalog.current_setting('primacy.admitted', true),
        pg_catalog.concat(E'\n', :schema_text, ' ', shown, E'\n')) OPERATOR(pg_catalog.>) 0 THEN
        SELECT highest INTO seen FROM :schema.primacy_fence_hold WHERE election OPERATOR(pg_catalog.=) TG_ARGV[0] FOR SHARE;
        IF seen IS NOT NULL AND shown OPERATOR(pg_catalog.=) pg_catalog.concat(seen, ' ', TG_ARGV[0]) THEN
            RETURN NULL;
        END IF;
    END IF;
    FOREACH line IN ARRAY pg_catalog.string_to_array(coalesce(shown, ''), E'\n') LOOP
        IF pg_catalog.substr(line, pg_catalog.strpos(line, ' ') OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.=) TG_ARGV[0]
            AND line OPERATOR(pg_catalog.~) '^[0-9]{1,19} ' THEN
            IF pg_catalog.split_part(line, ' ', 1)::pg_catalog.numeric OPERATOR(pg_catalog.>) 9223372036854775807 THEN
                RAISE EXCEPTION USING ERRCODE = 'PRM05', MESSAGE = 'primacy: a token is at most 9223372036854775807';
            END IF;
            PERFORM :schema.primacy_admit(TG_ARGV[0], pg_catalog.split_part(line, ' ', 1)::pg_catalog.int8);
            RETURN NULL;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'PRM01',
        MESSAGE = pg_catalog.format('primacy: no token of the election %s is shown, and the table %I is guarded', TG_ARGV[0], TG_TABLE_NAME),
        HINT = pg_catalog.format('In the same transaction, before the write: SET LOCAL primacy.token = ''TOKEN %s'';', TG_ARGV[0]);
END $primacy$;
-- Else anybody could put it on a table of their own, and show a number there that is far too high. A trigger that is there runs all the same.
REVOKE ALL ON FUNCTION :schema.primacy_guard() FROM PUBLIC;
