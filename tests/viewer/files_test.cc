/* Files that others made, or that lie where others can get at: links, pipes, names, endless views, failing disks. */
#include "fakes/command.h"
#include "fakes/ledger_rows.h"
#include "fakes/sanitizers.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern "C" {
#include "storage/tables/db.h"
}

namespace fs = std::filesystem;

namespace {

void change(const std::string &path, const std::string &sql) {
  sl_error error{};
  sl_db *db = nullptr;
  EXPECT_TRUE(sl_db_open(path.c_str(), SL_DB_WRITE, &db, &error) == 0 && sl_db_execute(db, sql.c_str(), &error) == 0)
      << error.text;
  sl_db_close(db);
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Files : public testing::Test {
protected:
  void SetUp() override {
    fs::copy(fs::path(SL_TEST_DATA) / "fsdp2-2rank", run, fs::copy_options::recursive);
  }
  std::string process(const std::string &prefix = "vm-713") {
    for (const auto &entry : fs::directory_iterator(run))
      if (contains(entry.path().filename(), prefix))
        return entry.path();
    return "";
  }
  void expect_refusal(const std::vector<std::string> &arguments, const std::string &part,
                      const CommandOptions &options = {}) {
    CommandResult result = shardledger(arguments, options);
    EXPECT_EQ(result.status, 2) << arguments[0];
    EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
    EXPECT_TRUE(contains(result.error, part)) << result.error;
  }
  TemporaryDirectory directory;
  std::string run = directory / "run", ledger = run + "/ledger.sqlite";
};

/* ---- what is written ---- */

TEST_F(Files, UnderConstructionHaveNamesThatNobodyCanTakeBefore) {
  const std::string victim = directory / "victim", output = directory / "out";
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  const std::vector<std::vector<std::string>> commands = {
      {"report", run, "-o", output},
      {"export", run, "-f", "perfetto", "-o", output},
      {"export", run, "-f", "nsys", "-o", output},
      {"ingest", run, "-o", output},
  };
  for (const auto &command : commands) {
    write_file(victim, "precious");
    /* The shell becomes the command, so it knows the number that the command will have. */
    std::string line = "ln -s " + victim + " " + output + ".$$.part; exec " + SL_BUILD_DIR + "/bin/shardledger";
    for (const std::string &word : command)
      line += " " + word;
    EXPECT_EQ(system(("sh -c '" + line + "' >/dev/null").c_str()), 0) << line;
    EXPECT_EQ(read_file(victim), "precious") << line;
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(output))) << line;
    fs::remove(output);
    for (const auto &entry : fs::directory_iterator(directory.path))
      if (entry.path().extension() == ".part")
        fs::remove(entry.path());
  }
}

TEST_F(Files, ThatAKilledExportLeftAreRemovedByTheNextOne) {
  const std::string output = directory / "run.pftrace", left = output + ".0123456789abcdef.part";
  write_file(left, "half");
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  ASSERT_EQ(shardledger({"export", run, "-f", "perfetto", "-o", output}).status, 0);
  EXPECT_FALSE(fs::exists(left));
}

/* ---- what is read ---- */

TEST_F(Files, LinksAndPipesInARunAreRefusedInWords) {
  ASSERT_EQ(shardledger({"ingest", run, "-o", directory / "real.sqlite"}).status, 0);
  fs::create_symlink(directory / "real.sqlite", ledger);
  expect_refusal({"peaks", run}, ledger + " is a link, and is not read; remove it");
  fs::remove(ledger);
  ASSERT_EQ(mkfifo(ledger.c_str(), 0600), 0);
  expect_refusal({"peaks", run}, ledger + " is no file, and is not read; remove it");
  fs::remove(ledger);

  write_file(directory / "secret", "range GLOB kind forward\n");
  fs::create_symlink(directory / "secret", run + "/rules");
  for (const char *command : {"peaks", "ingest", "rules"})
    expect_refusal({command, run}, run + "/rules is a link or no file, and is not read; remove it");
  expect_refusal({"watch", "--once", run}, "is a link or no file");
  fs::remove(run + "/rules");
  ASSERT_EQ(mkfifo((run + "/rules").c_str(), 0600), 0);
  for (const char *command : {"peaks", "ingest", "rules"})
    expect_refusal({command, run}, run + "/rules is a link or no file, and is not read; remove it");
}

TEST_F(Files, APipeThatIsNamedAsALedgerIsRefused) {
  const std::string pipe = directory / "pipe.sqlite";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_refusal({"peaks", pipe}, pipe + " is no file");
}

TEST_F(Files, ALinkThatTheUserNamesIsFollowed) {
  ASSERT_EQ(shardledger({"ingest", run, "-o", directory / "real.sqlite"}).status, 0);
  fs::create_symlink("real.sqlite", directory / "latest.sqlite");
  fs::create_symlink("run", directory / "latest");
  EXPECT_EQ(shardledger({"peaks", directory / "latest.sqlite"}).status, 0);
  EXPECT_EQ(shardledger({"ingest", directory / "latest"}).status, 0);
}

TEST_F(Files, AProcessThatIsALinkIsNotPartOfTheRun) {
  fs::rename(process("vm-714"), directory / "elsewhere");
  fs::create_directory_symlink(directory / "elsewhere", run + "/vm-714-1");
  EXPECT_EQ(shardledger({"query", "SELECT count(*) FROM rank", run, "--csv"}).out, "count(*)\n1\n");
}

TEST_F(Files, AStrayLogBesideTheRanksIsLeftOutInWords) {
  for (const auto &entry : fs::directory_iterator(process()))
    if (entry.path().extension() == ".slog") {
      fs::copy_file(entry.path(), run + "/00000000.slog");
      break;
    }
  CommandResult result = shardledger({"query", "SELECT count(*) FROM rank", run, "--csv"});
  EXPECT_EQ(result.out, "count(*)\n2\n");
  EXPECT_TRUE(contains(result.error, "has log files beside its processes' directories, which are of no process"))
      << result.error;
  EXPECT_TRUE(contains(shardledger({"dump", run, "--limit", "1"}).error, "events read"));
}

TEST_F(Files, PathsMayBeLongAndBeginAsUrisDo) {
  std::string deep = directory.path;
  while (deep.size() < 1500)
    deep += "/" + std::string(100, 'd');
  fs::create_directories(deep);
  fs::copy(run, deep + "/run", fs::copy_options::recursive);
  CommandResult result = shardledger({"ingest", deep + "/run"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_EQ(result.out, deep + "/run/ledger.sqlite\n");
  for (const std::vector<std::string> &command :
       std::vector<std::vector<std::string>>{{"peaks", deep + "/run"},
                                             {"diff", deep + "/run", deep + "/run/ledger.sqlite"},
                                             {"ingest", deep + "/run", "--jobs", "2"},
                                             {"export", deep + "/run", "-f", "nsys", "-o", deep + "/out.sqlite"},
                                             {"watch", "--once", deep + "/run"}}) {
    result = shardledger(command);
    EXPECT_EQ(result.status, 0) << command[0] << ": " << result.error;
  }
  EXPECT_TRUE(fs::exists(deep + "/out.sqlite"));

  CommandOptions here;
  here.directory = directory.path;
  for (const char *name : {"file:run.sqlite", "file:run.sqlite?mode=memory"}) {
    EXPECT_EQ(shardledger({"ingest", "run", "-o", name}, here).status, 0);
    EXPECT_TRUE(fs::exists(directory / name));
    EXPECT_EQ(shardledger({"query", "SELECT count(*) FROM rank", name, "--csv"}, here).out, "count(*)\n2\n");
    EXPECT_EQ(shardledger({"diff", name, name}, here).status, 0);
  }
}

TEST_F(Files, PathsCanNotSteerATerminal) {
  const std::string evil = directory / "\x1b]0;owned\x07";
  fs::create_directory(evil);
  fs::copy(run, evil + "/run", fs::copy_options::recursive);
  for (const std::vector<std::string> &command :
       std::vector<std::vector<std::string>>{{"ingest", evil + "/run"},
                                             {"ingest", evil + "/run", "-o", evil + "/l.sqlite"},
                                             {"merge", evil + "/run", "-o", evil + "/m.sqlite"},
                                             {"report", evil + "/run", "-o", evil + "/r.html"},
                                             {"export", evil + "/run", "-f", "perfetto", "-o", evil + "/p"},
                                             {"info", evil + "/run"},
                                             {"peaks", evil + "/nowhere"},
                                             {"dump", evil + "/run", "--limit", "3"},
                                             {"watch", "--once", evil + "/run"},
                                             {"doctor", "-o", evil},
                                             {"run", "-o", evil + "/new", "--", "true"}}) {
    CommandResult result = shardledger(command);
    EXPECT_FALSE(contains(result.out + result.error, "\x1b]")) << command[0];
    EXPECT_FALSE(contains(result.out + result.error, "\x07")) << command[0];
  }
}

/* ---- views that never end ---- */

const char *const kEndless = " AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS rank, "
                             "x AS thread, x AS tid, x AS at_ns, x AS source, x AS lost, x AS reason FROM n";

TEST_F(Files, AViewInATablesPlaceIsRefused) {
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  for (const char *name : {"gap", "GAP"}) {
    fs::copy_file(ledger, directory / name);
    change(directory / name, std::string("DROP TABLE gap; CREATE VIEW ") + name + kEndless);
    for (const char *command : {"info", "peaks", "report"})
      expect_refusal({command, directory / name}, std::string("'") + name + "' is no table in it");
  }
}

TEST_F(Files, ViewsOfALedgerAreNotAsked) {
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  const std::string changed = directory / "changed.sqlite";
  std::map<std::string, std::string> usual;
  for (const char *command : {"info", "peaks", "snapshots", "nccl", "device"})
    usual[command] = shardledger({command, ledger}).out;
  fs::copy_file(ledger, changed);
  std::string sql;
  for (const std::string &view : ledger_rows(ledger, "SELECT name FROM sqlite_schema WHERE type = 'view'"))
    sql += "DROP VIEW " + view + "; CREATE VIEW " + view + kEndless + "; ";
  EXPECT_GT(sql.size(), 1000u);
  change(changed, sql);
  for (const auto &[command, out] : usual) {
    CommandResult result = shardledger({command, changed});
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_EQ(result.out, out) << command << " asks a view";
  }
  expect_refusal({"export", changed, "-f", "nsys", "-o", directory / "out"},
                 "has views that this version did not make");
}

TEST_F(Files, AQueryThatNeverEndsIsEndedByCtrlC) {
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  const auto ignored = signal(SIGINT, SIG_DFL); /* by a background job's shell */
  pid_t child = fork();
  if (child == 0) {
    const std::string command = std::string(SL_BUILD_DIR) + "/bin/shardledger";
    execl(command.c_str(), command.c_str(), "query",
          "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n", run.c_str(), nullptr);
    _exit(98);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  signal(SIGINT, ignored);
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
}

/* ---- disks that fail ---- */

TEST_F(Files, AReadThatFailsIsAnErrorAndNoDamage) {
  if (SANITIZED)
    GTEST_SKIP() << "nothing can be preloaded";
  std::string segment;
  for (const auto &entry : fs::directory_iterator(process()))
    if (entry.path().extension() == ".slog" && fs::file_size(entry.path()) > 1000)
      segment = entry.path().filename();
  ASSERT_NE(segment, "");
  const struct {
    const char *call;
    int number;
    const char *said;
  } failures[] = {
      {"read", EIO, "can't be read: Input/output error"},     {"open", EIO, "can't be read: Input/output error"},
      {"open", EACCES, "can't be read: Permission denied"},   {"read", ENOMEM, "out of memory while reading "},
      {"open", EMFILE, "can't be read: Too many open files"}, {"read", ESTALE, "can't be read: Stale file handle"},
  };
  for (const auto &failure : failures) {
    CommandOptions options;
    options.environment = {{"LD_PRELOAD", std::string(SL_BUILD_DIR) + "/fakes/libfailing_files.so"},
                           {"FAIL_CALL", failure.call},
                           {"FAIL_FILE", segment},
                           {"FAIL_ERRNO", std::to_string(failure.number)}};
    for (const char *command : {"ingest", "peaks", "dump"}) {
      CommandResult result = shardledger({command, run}, options);
      EXPECT_EQ(result.status, 2) << command << " " << failure.said;
      EXPECT_TRUE(contains(result.error, failure.said) && contains(result.error, segment)) << result.error;
    }
    EXPECT_EQ(shardledger({"watch", "--once", run}, options).status, 2);
    EXPECT_FALSE(fs::exists(ledger)) << "nothing is made of a part";
  }
  EXPECT_EQ(shardledger({"ingest", run}).status, 0);
  EXPECT_EQ(ledger_rows(ledger, "SELECT count(*) FROM gap"), std::vector<std::string>{"0"});
}

} // namespace
