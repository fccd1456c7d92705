
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
        SELECT :table::regclass::oid
        UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = relation
    )
    SELECT inhparent::regclass INTO outside FROM tree JOIN pg_inherits ON inhrelid = relation
        WHERE inhparent NOT IN (SELECT relation FROM tree) LIMIT 1;
    IF outside IS NOT NULL THEN
        RAISE EXCEPTION 'primacy: a part of % can also be written by the name of %, and would not be guarded there; name that one',
            :table::regclass, outside;
    END IF;
    FOR guarded, kind IN
        WITH RECURSIVE tree(relation) AS (
            SELECT :table::regclass::oid
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
                'FOR EACH STATEMENT EXECUTE FUNCTION %s.primacy_guard(%L)', guarded, :schema_text, :election);
        ELSIF strpos(theirs, format('primacy_guard(%L)', :election)) = 0 THEN
            RAISE EXCEPTION 'primacy: % is guarded for another election: %', guarded, theirs;
        ELSIF called <> format('%s.primacy_guard()', :schema_text)::regprocedure THEN
            RAISE EXCEPTION 'primacy: % is guarded by a fence in another schema: %', guarded, theirs;
        END IF;
        -- Also where session_replication_role turns ordinary triggers off, and where somebody has disabled it.
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER primacy_guard', guarded);
    END LOOP;
END $primacy$;
