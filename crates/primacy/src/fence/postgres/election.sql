
-- What is there is not inserted once more: that would wait for a transaction that raises the token.
INSERT INTO :schema.primacy_fence(election, highest) SELECT :election, 0
    WHERE NOT EXISTS (SELECT FROM :schema.primacy_fence WHERE election OPERATOR(pg_catalog.=) :election) ON CONFLICT DO NOTHING;
INSERT INTO :schema.primacy_fence_hold(election, highest) SELECT election, highest FROM :schema.primacy_fence AS fence
    WHERE NOT EXISTS (SELECT FROM :schema.primacy_fence_hold AS held WHERE held.election OPERATOR(pg_catalog.=) fence.election)
    ON CONFLICT DO NOTHING;
