BEGIN TRANSACTION;
CREATE TABLE epoch (number integer not null);
INSERT INTO "epoch" VALUES(0);
CREATE TABLE followed (
      scope text not null, terms blob not null, tool text not null, vector blob, weight real not null, at real not null,
      primary key (scope, terms, tool)
    ) without rowid;
INSERT INTO "followed" VALUES('work/claude',X'0001020304050607','mail.send',NULL,2.0,1790000000.0);
CREATE TABLE together (
      scope text not null, one text not null, other text not null, weight real not null, at real not null,
      primary key (scope, one, other)
    ) without rowid;
INSERT INTO "together" VALUES('work/claude','mail.find','mail.send',1.0,1790000000.0);
CREATE TABLE used (
      scope text not null, tool text not null, weight real not null, at real not null, primary key (scope, tool)
    ) without rowid;
INSERT INTO "used" VALUES('work/claude','mail.send',3.0,1790000000.0);
COMMIT;
PRAGMA application_id = 1349481032;
PRAGMA user_version = 2;
