GRANT USAGE ON SCHEMA :schema TO :writer;
GRANT EXECUTE ON FUNCTION :schema.primacy_token(pg_catalog.text, pg_catalog.int8) TO :writer;
