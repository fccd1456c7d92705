
INSERT INTO :schema.primacy_fence(election, highest) VALUES (:election, 0) ON CONFLICT DO NOTHING;
