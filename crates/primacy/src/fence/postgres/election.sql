
INSERT INTO :schema.primacy_fence(election, highest) VALUES (:election, 0) ON CONFLICT DO NOTHING;
INSERT INTO :schema.primacy_fence_hold(election, highest) SELECT election, highest FROM :schema.primacy_fence ON CONFLICT DO NOTHING;
