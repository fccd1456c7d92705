GRANT USAGE ON SCHEMA :schema TO :writer;
GRANT EXECUTE ON FUNCTION :schema.primacy_token(text, bigint) TO :writer;
