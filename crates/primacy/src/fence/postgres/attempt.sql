-- Writes that a guard refuses, and nothing of which is kept. Names say their schema: who looks may be a superuser, and the path may
-- lead into a schema where others make functions.
BEGIN;
SET LOCAL lock_timeout = '5s';
SET LOCAL statement_timeout = '15s';
DO $primacy$
DECLARE
    tried pg_catalog.regclass := :table::pg_catalog.regclass;
    -- They name no row. The guard stands before the statement, and is asked all the same.
    statements pg_catalog.text[] := ARRAY[pg_catalog.format('DELETE FROM %s WHERE false', tried)];
    plain pg_catalog.name := (SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid OPERATOR(pg_catalog.=) tried::pg_catalog.oid
        AND attnum OPERATOR(pg_catalog.>) 0 AND NOT attisdropped AND attgenerated OPERATOR(pg_catalog.=) '' ORDER BY attnum LIMIT 1);
    made pg_catalog.record;
    schema pg_catalog.text;
    named pg_catalog.text;
    acts_as pg_catalog.name;
    of_election pg_catalog.text;
    highest pg_catalog.int8;
    shown pg_catalog.text;
    statement pg_catalog.text;
    answer pg_catalog.text;
    untried pg_catalog.text;
BEGIN
    IF plain IS NOT NULL THEN
        statements := pg_catalog.array_append(statements, pg_catalog.format('UPDATE %s SET %I = DEFAULT WHERE false', tried, plain));
    END IF;
    -- Its only argument is the election, with a zero byte at the end.
    SELECT pg_catalog.quote_ident(nspname), nspname,
            pg_catalog.convert_from(pg_catalog."substring"(tgargs, 1, pg_catalog.length(tgargs) OPERATOR(pg_catalog.-) 1), pg_catalog.getdatabaseencoding()),
            pg_catalog.pg_get_userbyid(proowner)
        INTO schema, named, of_election, acts_as FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_proc ON pg_proc.oid OPERATOR(pg_catalog.=) tgfoid
        JOIN pg_catalog.pg_namespace ON pg_namespace.oid OPERATOR(pg_catalog.=) pronamespace
        WHERE tgrelid OPERATOR(pg_catalog.=) tried::pg_catalog.oid AND tgname OPERATOR(pg_catalog.=) 'primacy_guard'
        AND proname OPERATOR(pg_catalog.=) 'primacy_guard';
    PERFORM pg_catalog.set_config('primacy_attempt.foreign', '', true), pg_catalog.set_config('primacy_attempt.schema', coalesce(named, ''), true);
    FOR made IN
        :parts
    LOOP
        IF NOT :owned OR (made.kind OPERATOR(pg_catalog.<>) ALL (ARRAY['schema', 'right']) AND NOT :trusted) THEN
            PERFORM pg_catalog.set_config('primacy_attempt.foreign',
                pg_catalog.format('%s belongs to the role %s', made.shown, :role), true);
        END IF;
    END LOOP;
    PERFORM pg_catalog.set_config('primacy_attempt.definition', coalesce(pg_catalog.string_agg(pg_catalog.concat(proname, ' ', prosecdef, ' ',
            proconfig, E'\n', prosrc), E'\n' ORDER BY proname::pg_catalog.text COLLATE pg_catalog."C"), ''), true)
        FROM pg_catalog.pg_proc WHERE proname OPERATOR(pg_catalog.=) ANY (ARRAY[:functions])
        AND pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid;
    -- A statement runs the guard of the table that it names, and writes to all below that one.
    PERFORM pg_catalog.set_config('primacy_attempt.unguarded', coalesce((
        WITH RECURSIVE above AS (
            SELECT tried::pg_catalog.oid AS relation
            UNION SELECT inhparent FROM pg_catalog.pg_inherits JOIN above ON inhrelid OPERATOR(pg_catalog.=) relation
        ), below AS (
            SELECT tried::pg_catalog.oid AS relation
            UNION SELECT inhrelid FROM pg_catalog.pg_inherits JOIN below ON inhparent OPERATOR(pg_catalog.=) relation
        )
        SELECT pg_catalog.string_agg(relation::pg_catalog.regclass::pg_catalog.text, E'\n')
            FROM (SELECT relation FROM above UNION SELECT relation FROM below) AS tree
            WHERE relation OPERATOR(pg_catalog.<>) tried::pg_catalog.oid AND of_election IS NOT NULL
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS ours, pg_catalog.pg_trigger AS theirs
                WHERE ours.tgrelid OPERATOR(pg_catalog.=) tried::pg_catalog.oid AND ours.tgname OPERATOR(pg_catalog.=) 'primacy_guard'
                AND theirs.tgrelid OPERATOR(pg_catalog.=) relation AND theirs.tgenabled OPERATOR(pg_catalog.=) 'A'
                AND theirs.tgfoid OPERATOR(pg_catalog.=) ours.tgfoid AND theirs.tgargs OPERATOR(pg_catalog.=) ours.tgargs)), ''), true),
        pg_catalog.set_config('primacy_attempt.others', coalesce(:others, ''), true);
    -- What belongs to somebody else is not looked into: it may be a view, whose functions would run with our rights.
    IF schema IS NOT NULL AND pg_catalog.current_setting('primacy_attempt.foreign') OPERATOR(pg_catalog.=) '' THEN
        BEGIN
            EXECUTE pg_catalog.format('SELECT highest FROM %s.primacy_fence WHERE election OPERATOR(pg_catalog.=) $1', schema)
                INTO highest USING of_election;
        EXCEPTION WHEN OTHERS THEN
            highest := NULL;
        END;
    END IF;
    PERFORM pg_catalog.set_config('primacy_attempt.election', coalesce(of_election, ''), true),
        pg_catalog.set_config('primacy_attempt.highest', coalesce(highest::pg_catalog.text, ''), true);
    -- What is on the table would run with our rights, and no rollback takes back what it does outside of the database: its triggers, and
    -- functions that the planner calls. The guard would have those of its fence run with the rights of its owner.
    IF pg_catalog.current_setting('primacy_attempt.foreign') OPERATOR(pg_catalog.<>) '' THEN
        untried := pg_catalog.current_setting('primacy_attempt.foreign');
    ELSIF NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid OPERATOR(pg_catalog.=) tried::pg_catalog.oid
        AND relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'p']::pg_catalog."char"[])) THEN
        untried := 'it is no table';
    END IF;
    FOR made IN
        SELECT part.shown, part.owner FROM :on_table AS part
    LOOP
        IF untried IS NULL AND NOT :trusted THEN
            untried := pg_catalog.format('%s belongs to the role %s, and what that puts there would run with the rights of %s; ask as that role',
                made.shown, :role, current_user);
        END IF;
    END LOOP;
    IF untried IS NOT NULL THEN
        PERFORM pg_catalog.set_config('primacy_attempt.without', pg_catalog.concat('untried ', untried), true),
            pg_catalog.set_config('primacy_attempt.stale', pg_catalog.concat('untried ', untried), true);
        RETURN;
    END IF;
    -- None; and one that is stale. Where no leader has shown one, or that may not be seen, 1 makes 0 stale until the end of this transaction.
    FOREACH shown IN ARRAY CASE
        WHEN of_election IS NULL THEN ARRAY['']
        WHEN coalesce(highest, 0) OPERATOR(pg_catalog.=) 0 THEN ARRAY['', pg_catalog.concat('1 ', of_election), pg_catalog.concat('0 ', of_election)]
        ELSE ARRAY['', pg_catalog.concat(highest OPERATOR(pg_catalog.-) 1, ' ', of_election)]
    END LOOP
        answer := 'denied';
        FOREACH statement IN ARRAY statements LOOP
            BEGIN
                PERFORM pg_catalog.set_config('primacy.token', shown, true);
                EXECUTE statement;
                answer := 'admitted';
            EXCEPTION
                WHEN insufficient_privilege THEN answer := 'denied';
                WHEN OTHERS THEN answer := pg_catalog.concat(SQLSTATE, ' ', SQLERRM);
            END;
            EXIT WHEN answer OPERATOR(pg_catalog.<>) 'denied';
        END LOOP;
        PERFORM pg_catalog.set_config(CASE WHEN shown OPERATOR(pg_catalog.=) '' THEN 'primacy_attempt.without' ELSE 'primacy_attempt.stale' END,
            answer, true);
    END LOOP;
END $primacy$;
SELECT pg_catalog.current_setting('primacy_attempt.election'), pg_catalog.current_setting('primacy_attempt.highest'),
    pg_catalog.current_setting('primacy_attempt.without'), pg_catalog.current_setting('primacy_attempt.foreign'),
    pg_catalog.current_setting('primacy_attempt.schema'), pg_catalog.current_setting('primacy_attempt.definition'),
    pg_catalog.current_setting('primacy_attempt.unguarded'), pg_catalog.current_setting('primacy_attempt.others'),
    pg_catalog.current_setting('primacy_attempt.stale', true);
ROLLBACK;
