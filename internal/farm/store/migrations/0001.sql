-- Times are microseconds since 1970 in UTC, 0 where there is none. {{rowkey}} is
-- a number that the database gives to a row.

CREATE TABLE nodes (
	name       TEXT PRIMARY KEY,
	mac        TEXT NOT NULL DEFAULT '',
	uuid       TEXT NOT NULL DEFAULT '',
	serial     TEXT NOT NULL DEFAULT '',
	first_seen BIGINT NOT NULL DEFAULT 0,
	last_seen  BIGINT NOT NULL DEFAULT 0,
	-- What the table of all nodes shows, so that it need not look for it.
	last_run   BIGINT NOT NULL DEFAULT 0, -- key of the newest run
	trend      TEXT NOT NULL DEFAULT ''   -- worst percentage of the last nights
);

CREATE TABLE runs (
	key       {{rowkey}},
	id        TEXT NOT NULL UNIQUE,
	node      TEXT NOT NULL REFERENCES nodes (name),
	night     TEXT NOT NULL,
	source    TEXT NOT NULL,
	state     TEXT NOT NULL,
	why       TEXT NOT NULL DEFAULT '',
	image     TEXT NOT NULL DEFAULT '',
	plan      TEXT NOT NULL DEFAULT '',
	offered   BIGINT NOT NULL,
	started   BIGINT NOT NULL DEFAULT 0,
	updated   BIGINT NOT NULL DEFAULT 0,
	ended     BIGINT NOT NULL DEFAULT 0,
	deadline  BIGINT NOT NULL DEFAULT 0,
	chunks    BIGINT NOT NULL DEFAULT 0,
	bytes     BIGINT NOT NULL DEFAULT 0,
	stage     TEXT NOT NULL DEFAULT '',
	token     BYTEA,                       -- SHA-256; NULL where the run was imported
	removed   BIGINT NOT NULL DEFAULT 0,   -- when the chunks were

	-- The summary; judged counts the chunks that it is about, -1 where there is none.
	judged    BIGINT NOT NULL DEFAULT -1,
	judged_at BIGINT NOT NULL DEFAULT 0,
	said      BIGINT NOT NULL DEFAULT 0,   -- 1 where the report said something
	verdict   TEXT NOT NULL DEFAULT '',
	reason    TEXT NOT NULL DEFAULT '',
	driver    TEXT NOT NULL DEFAULT '',
	kernel    TEXT NOT NULL DEFAULT '',
	product   TEXT NOT NULL DEFAULT '',
	settings  TEXT NOT NULL DEFAULT '',    -- JSON
	worst     DOUBLE PRECISION,
	worse     BIGINT NOT NULL DEFAULT 0    -- changes for the worse
);
CREATE INDEX runs_of_node ON runs (node, night, offered);
CREATE INDEX runs_of_night ON runs (night, state, verdict, worse);
CREATE INDEX runs_unfinished ON runs (deadline) WHERE state IN ('offered', 'running');
CREATE INDEX runs_unjudged ON runs (updated) WHERE judged < chunks;

CREATE TABLE chunks (
	run  BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
	seq  BIGINT NOT NULL,
	sum  BYTEA NOT NULL,  -- SHA-256 of the lines
	data BYTEA NOT NULL,  -- the lines, as zstd
	PRIMARY KEY (run, seq)
);

CREATE TABLE pairs (
	run        BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
	n          BIGINT NOT NULL,
	initiator  TEXT NOT NULL,
	peer       TEXT NOT NULL,
	direction  TEXT NOT NULL,
	method     TEXT NOT NULL,
	gbps       DOUBLE PRECISION NOT NULL,
	ceiling    DOUBLE PRECISION NOT NULL,
	latency_ns DOUBLE PRECISION NOT NULL,
	verdict    TEXT NOT NULL,
	PRIMARY KEY (run, n)
);

CREATE TABLE findings (
	run     BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
	n       BIGINT NOT NULL,
	id      TEXT NOT NULL,
	status  TEXT NOT NULL,
	title   TEXT NOT NULL,
	fix     TEXT NOT NULL,
	devices TEXT NOT NULL, -- JSON
	PRIMARY KEY (run, n)
);

CREATE TABLE changes (
	run     BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
	n       BIGINT NOT NULL,
	kind    TEXT NOT NULL,
	subject TEXT NOT NULL,
	before  TEXT NOT NULL,
	after   TEXT NOT NULL,
	worse   BIGINT NOT NULL,
	fix     TEXT NOT NULL,
	PRIMARY KEY (run, n)
);

CREATE TABLE baselines (
	node    TEXT NOT NULL REFERENCES nodes (name),
	key     TEXT NOT NULL,
	by_hand BIGINT NOT NULL, -- 1: set with Pin; 0: what the node's last run was held against
	pinned  BIGINT NOT NULL,
	unit    TEXT NOT NULL,
	median  DOUBLE PRECISION NOT NULL,
	mad     DOUBLE PRECISION NOT NULL,
	runs    BIGINT NOT NULL,
	PRIMARY KEY (node, key, by_hand)
);

CREATE TABLE armed (
	node     TEXT NOT NULL REFERENCES nodes (name),
	night    TEXT NOT NULL,
	image    TEXT NOT NULL,
	plan     TEXT NOT NULL,
	attempts BIGINT NOT NULL,
	deadline BIGINT NOT NULL, -- microseconds from the offer
	at       BIGINT NOT NULL,
	PRIMARY KEY (node, night)
);
