-- breaking: no
-- Which kind of odd answer is being counted: answers of different kinds confirm nothing
-- together. And when the provider was first seen to be done: from then on the retention clock
-- stands, even where a later answer says "running" again.

ALTER TABLE jobs
    ADD COLUMN odd_state text,
    ADD COLUMN completion_seen_at timestamptz;
