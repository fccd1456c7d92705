-- Writes that a guard refuses, and nothing of which is kept.
BEGIN;
SET LOCAL lock_timeout = '5s';
SET LOCAL statement_timeout = '15s';
DO $primacy$
DECLARE
    tried regclass := :table::regclass;
    -- They name no row. The guard stands before the statement, and is asked all the same.
    statements text[] := ARRAY[format('DELETE FROM %s WHERE false', tried)];
    plain name := (SELECT attname FROM pg_attribute WHERE attrelid = tried AND attnum > 0 AND NOT attisdropped
        AND attgenerated = '' ORDER BY attnum LIMIT 1);
    schema text;
    of_election text;
    highest bigint;
    shown text;
    statement text;
    answer text;
BEGIN
    IF plain IS NOT NULL THEN
        statements := statements || format('UPDATE %s SET %I = DEFAULT WHERE false', tried, plain);
    END IF;
    -- Its only argument is the election, with a zero byte at the end.
    SELECT pronamespace::regnamespace::text, convert_from(substring(tgargs FROM 1 FOR length(tgargs) - 1), getdatabaseencoding())
        INTO schema, of_election FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
        WHERE tgrelid = tried AND tgname = 'primacy_guard' AND proname = 'primacy_guard';
    IF schema IS NOT NULL THEN
        BEGIN
            EXECUTE format('SELECT highest FROM %s.primacy_fence WHERE election = $1', schema) INTO highest USING of_election;
        EXCEPTION WHEN OTHERS THEN
            highest := NULL;
        END;
    END IF;
    PERFORM set_config('primacy_attempt.election', coalesce(of_election, ''), true),
        set_config('primacy_attempt.highest', coalesce(highest::text, ''), true);
    -- None; and one that is stale. Where no leader has shown one, 1 makes 0 stale until the end of this transaction.
    FOREACH shown IN ARRAY CASE
        WHEN of_election IS NULL THEN ARRAY['']
        WHEN highest = 0 THEN ARRAY['', '1 ' || of_election, '0 ' || of_election]
        ELSE ARRAY['', coalesce(highest - 1, 0) || ' ' || of_election]
    END LOOP
        answer := 'denied';
        FOREACH statement IN ARRAY statements LOOP
            BEGIN
                PERFORM set_config('primacy.token', shown, true);
                EXECUTE statement;
                answer := 'admitted';
            EXCEPTION
                WHEN insufficient_privilege THEN answer := 'denied';
                WHEN OTHERS THEN answer := SQLSTATE || ' ' || SQLERRM;
            END;
            EXIT WHEN answer <> 'denied';
        END LOOP;
        PERFORM set_config(CASE shown WHEN '' THEN 'primacy_attempt.without' ELSE 'primacy_attempt.stale' END, answer, true);
    END LOOP;
END $primacy$;
SELECT current_setting('primacy_attempt.election'), current_setting('primacy_attempt.highest'),
    current_setting('primacy_attempt.without'), current_setting('primacy_attempt.stale', true);
ROLLBACK;
