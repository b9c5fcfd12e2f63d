/* The command table: finds the command that the user named and runs it. */
#include "command.h"
#include "manual.h"
#include "output/terminal.h"
#include "storage/words.h"

#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>

#ifndef SL_VERSION
#error "SL_VERSION comes from the build"
#endif

const struct sl_command sl_commands[] = {
    {"run", "run a training job and record it", "[-o DIR] [options] -- CMD…",
     "CMD is what starts the job: torchrun, srun, python … It keeps its output, its signals and its exit status.\n"
     "Afterwards the logs are ingested and the peak is shown. --help-env explains the options and their variables.",
     "shardledger run -- torchrun --nproc-per-node 2 train.py\n"
     "shardledger run -o before-change --kernels all -- python train.py",
     sl_cmd_run},
    {"rehearse", "run a job on one GPU as one rank of many, for the memory that it would take there",
     "--world-size N [--rank RANKS] [--steps K] [--device-memory SIZE] [-o DIR] -- CMD…",
     "The unmodified job really runs, as rank R of N; in place of NCCL and Gloo is a process group that sends nothing and\n"
     "takes the other ranks for copies of this one. Requested, allocated and reserved bytes are those of the real rank;\n"
     "NCCL's own memory and times are not. Everything that is recorded says that it is a rehearsal.\n\n"
     "CMD is what one rank runs, or a torchrun command. The job ends where step K would begin, with its own clean-up.\n"
     "Where it needs what only another rank knows, one sentence names the call, and the exit status is 2.\n"
     "--device-memory limits the job to a smaller device and says whether it fits. docs/rehearse.md has all of it.",
     "shardledger rehearse --world-size 64 -- python train.py\n"
     "shardledger rehearse --world-size 512 --rank 0,last --device-memory 80GiB -- python train.py\n"
     "shardledger rehearse --world-size 16 --steps 5 -o sixteen -- torchrun --nproc-per-node 8 train.py",
     sl_cmd_rehearse},
    {"ingest", "make the ledger of a recorded run",
     "[DIR|SNAPSHOT…] [-o FILE] [--keep changes|all] [--jobs N] [--rules FILE]",
     "Other commands do this by themselves when a run directory's ledger is missing or old.\n\n"
     "PyTorch's own memory snapshots (torch.cuda.memory._dump_snapshot) are read too, of any size; nothing in them is "
     "run.\n"
     "The ledger goes beside the file; all commands take either. Several files are the ranks of one run, by the number\n"
     "behind \"rank\" in their names, else in the order given. docs/snapshots.md says what a snapshot can't tell.\n\n"
     "A step that does to the byte what an earlier one did is stored once: step.same_as names the one whose rows "
     "speak\n"
     "for it. The first ten steps, the last one and every step that differs are there in full; so is whatever "
     "outlives\n"
     "the next step. --keep all keeps the rows of every step, for timelines without holes.\n\n"
     "Ranks are ingested side by side, one on each processor that the process may use, at most 16; --jobs N takes "
     "another\n"
     "number. The ledger is the same for any number.\n\n"
     "Rules say what the names of your ranges and modules mean, one a line; an empty file takes kept ones away:\n"
     "  range GLOB kind KIND [module=FQN-GLOB]   such a range is a step, a forward, a backward, an optimizer_step …\n"
     "  range GLOB category CATEGORY             untagged memory made inside of such a range has this category\n"
     "  module GLOB category CATEGORY            and so has what such a module keeps after its phase\n"
     "'shardledger rules' shows kinds, categories and what is in force.",
     "shardledger ingest shardledger-out -o run.sqlite\n"
     "shardledger ingest shardledger-out --keep all\n"
     "shardledger ingest shardledger-out --rules my.rules\n"
     "shardledger ingest snapshot.pickle\n"
     "shardledger ingest snapshot_rank0.pickle snapshot_rank1.pickle",
     sl_cmd_ingest},
    {"merge", "make one ledger of the run directories of several nodes",
     "DIR… -o FILE [--keep changes|all] [--jobs N] [--rules FILE]",
     "For jobs whose nodes share no disk: collect what SHARDLEDGER_DIR was on each of them. Ranks keep their numbers "
     "and\n"
     "hosts. Directories of different jobs are refused. All commands read the result.",
     "shardledger merge node0/shardledger-out node1/shardledger-out -o run.sqlite", sl_cmd_merge},
    {"info", "what was recorded, and what was not", "[DIR|FILE] [options]", NULL, "shardledger info shardledger-out",
     sl_cmd_info},
    {"peaks", "who held memory at each peak",
     "[DIR|FILE] [--by module|category|step|rank|line|operator|stack|idle] [options]",
     "Without --by: the peak at a glance, then every module and phase of the highest step of each rank; of more than "
     "two\nranks, of the highest one.",
     "shardledger peaks shardledger-out\n"
     "shardledger peaks shardledger-out --by step --csv\n"
     "shardledger peaks shardledger-out --by idle --step 1\n"
     "shardledger peaks run.sqlite --by module --step 3 --rank 0 --depth 2",
     sl_cmd_peaks},
    {"ranks", "which ranks are different, in what, and since when",
     "[DIR|FILE] [--by host|communicator|mesh] [options]",
     "Ranks that behave alike are one group; each other group is told next to the largest one, with no run before to compare\n"
     "with. Alike is within 1 MiB or 1 % of the peaks of the same steps; a leak is told however small. A group that is exactly\n"
     "a host, a communicator, or a coordinate of a DeviceMesh says so. docs/ranks.md has all of it.",
     "shardledger ranks shardledger-out\nshardledger ranks shardledger-out --by host", sl_cmd_ranks},
    {"snapshots", "what the device held at each state of a module, as FSDPMemTracker shows it",
     "[DIR|FILE] [MODULE] [options]",
     "Rows are a module's states, columns FSDPMemTracker's categories and their Total. Modules go by FSDPMemTracker's\n"
     "names, the root's class first. MODULE is such a name, one without the class, or a pattern with * and ?.",
     "shardledger snapshots shardledger-out --step 1\n"
     "shardledger snapshots shardledger-out 'layers.*' --rank 0 --csv",
     sl_cmd_snapshots},
    {"nccl", "NCCL's collectives: time, bytes, bandwidth, which rank was late, what no computation hid",
     "[DIR|FILE] [--by operation|module|communicator] [options]",
     "Without --by: operations, communicators and stragglers. Bandwidths are NCCL-tests' definitions, over the "
     "transfer:\n"
     "the time on the rank that waited least. Delay is from the host's call to the start on "
     "the\n"
     "device, spread from the first rank's start to the last one's.",
     "shardledger nccl shardledger-out\n"
     "shardledger nccl shardledger-out --by module --step 2\n"
     "shardledger nccl shardledger-out --slowest 10 --csv",
     sl_cmd_nccl},
    {"device", "the whole device, line by line: PyTorch, NCCL, cuBLAS, the CUDA context, other processes",
     "[DIR|FILE] [--segments] [--at N|peak|last|oom] [--by step] [--rank RANKS] [options]",
     "used = PyTorch's tensors + its cache + NCCL + … + unexplained; then what made it grow, how fragmented the cache\n"
     "is and what keeps its segments, and memory on GPUs of other ranks. docs/device.md explains the owners.\n"
     "With --segments: a map of PyTorch's segments, or their sums step by step.",
     "shardledger device shardledger-out\nshardledger device shardledger-out --by step --rank 0\n"
     "shardledger device shardledger-out --at last --csv\n"
     "shardledger device shardledger-out --segments --at peak",
     sl_cmd_device},
    {"oom", "the post-mortem of an out-of-memory error, a kill or a crash", "[DIR|FILE] [--rank RANKS] [options]",
     "What was asked for and by whom, why it did not fit, what would help (estimates from what was alive), what was "
     "alive\n"
     "by category, module and size, and what had changed since the step before. Of a process that was killed: what "
     "was\n"
     "alive when its log ended.",
     "shardledger oom shardledger-out\nshardledger oom shardledger-out --rank 1 --json", sl_cmd_oom},
    {"survivors", "what outlives its step and the next one, and what of it grows: the leak finder",
     "[DIR|FILE] [--step N] [--rank RANKS] [--min SIZE] [options]",
     "Growth is what a rank holds more at the end of its last step than at the end of an early one, by owner: where several\n"
     "periods made some that stays. Below it is what outlives its step and the next one: from every step, from some, once\n"
     "(optimizer state, workspaces), or passing.",
     "shardledger survivors shardledger-out\nshardledger survivors shardledger-out --rank 0 --min 1MiB --csv",
     sl_cmd_survivors},
    {"explain", "one allocation's whole story: who, where, when, and why it has its category",
     "ID|ADDRESS [DIR|FILE] [--rank R] [--at NS] [options]",
     "ADDRESS may point anywhere into the allocation, as tensor.data_ptr() does. When several allocations had it, one\n"
     "after the other or on several ranks, they are listed.",
     "shardledger explain 1234 shardledger-out\nshardledger explain 0x7f5c2a000000 shardledger-out --rank 0",
     sl_cmd_explain},
    {"report", "one self-contained HTML page: the verdict, what to do, memory over time, allocations, modules, ranks",
     "[BEFORE] [DIR|FILE] [-o FILE.html] [--step N] [--rank RANKS]",
     "Opens in any browser, without a network. The page says which steps it holds allocation by allocation: all of a\n"
     "small run; of a long one the first three, those with a peak, and the last. Every step's peak is exact.\n"
     "With BEFORE, another run, it also has what 'shardledger diff BEFORE DIR' says.",
     "shardledger report shardledger-out -o report.html\nshardledger report run.sqlite --step 812 -o step812.html\n"
     "shardledger report run.sqlite --rank 64-71\nshardledger report before shardledger-out",
     sl_cmd_report},
    {"export", "write the timeline or the peak for other tools, or all tables as Parquet",
     "[DIR|FILE] --format FORMAT -o FILE [--rank RANKS]",
     "nsys: the SQLite file of Nsight Systems' own export, for everything that reads such files.\n"
     "kineto: torch.profiler's JSON, one file a rank in a directory, for HTA and Perfetto.\n"
     "perfetto: one trace for ui.perfetto.dev: memory by category and module over time, phases, kernels, collectives.\n"
     "snapshot: PyTorch's memory snapshot, one file a rank in a directory, for pytorch.org/memory_viz.\n"
     "folded, pprof: what the peak was made of by call stack, for flamegraph.pl, speedscope and go tool pprof.\n"
     "datasette: meanings, units and ready questions, for 'datasette LEDGER --metadata FILE'.\n"
     "parquet: every table into a lake of many ranks and runs, for DuckDB and Spark; with Python and DuckDB.\n"
     "Docs: timelines.md says what is in each, scale.md what a lake is.",
     "shardledger export shardledger-out --format nsys -o run-nsys.sqlite\n"
     "shardledger export shardledger-out --format kineto -o traces\n"
     "shardledger export shardledger-out --format perfetto -o run.pftrace\n"
     "shardledger export shardledger-out --format parquet -o lake --name before-change",
     sl_cmd_export},
    {"whatif", "what a run would have taken otherwise: more ranks, recomputation, another optimizer, a smaller GPU",
     "[DIR|FILE] [--world-size N] [--recompute MODULES] [--alloc-conf CONF] [options]",
     "Every request of the recorded run is made again of an allocator that chooses blocks as PyTorch's does. Unchanged, that\n"
     "must be what was recorded, to the byte and in every period; else nothing is predicted. Each figure has its standing:\n"
     "exact (proven: no address of a segment has decided it), bound (proven to lie from After to At most), estimate (not\n"
     "proven: the least and the most of a number of plays with other addresses), or refused. docs/prediction.md has more.",
     "shardledger whatif shardledger-out --alloc-conf expandable_segments:True\n"
     "shardledger whatif shardledger-out --world-size 64 --device-memory 80GiB\n"
     "shardledger whatif shardledger-out --recompute all --accumulate 2\n"
     "shardledger whatif shardledger-out --recompute none --loss-chunks 8\n"
     "shardledger whatif shardledger-out --mixed-precision bf16 --world-size 64\n"
     "shardledger whatif shardledger-out --optimizer adamw-fused --no-workspaces\n"
     "shardledger whatif shardledger-out --batch 3 --at 2=twice-the-batch\n"
     "shardledger whatif shardledger-out --alloc-conf max_split_size_mb:64 --by period --csv",
     sl_cmd_whatif},
    {"advise", "what would make a run fit: the cheapest changes first, and how sure that is",
     "[DIR|FILE] [--budget SIZE] [--rank RANKS] [options]",
     "Of a run that ran out of memory: what would have served it. Of one that did not: what takes less, or fits into a budget.\n"
     "Changes are tried by 'whatif' on the recorded requests, also together; what can't be predicted is told by how much\n"
     "memory it is about. docs/advice.md has more.",
     "shardledger advise shardledger-out\nshardledger advise shardledger-out --budget 40GiB\n"
     "shardledger advise shardledger-out --batch 4 --at 8=twice-the-batch\n"
     "shardledger advise shardledger-out --json",
     sl_cmd_advise},
    {"diff", "what changed between two runs, or differs between two ranks or periods: the largest first",
     "A [B] [--step N] [--rank RANKS] [--other-rank R] [--period P] [--other-period Q] [options]",
     "Peaks of steps are aligned by number, those outside of steps by the step before, modules by FQN and phase,\n"
     "categories by name. Modules and categories are those of each side's highest period, of --step, or of --period.",
     "shardledger diff before-change after-change\n"
     "shardledger diff before.sqlite after.sqlite --step 3 --min 1MiB --csv\n"
     "shardledger diff shardledger-out --rank 0 --other-rank 1\n"
     "shardledger diff shardledger-out --period 3 --other-period 21",
     sl_cmd_diff},
    {"check", "hold a run against budgets: exit 1 and a reason for each that is not kept",
     "[DIR|FILE] [--max-peak SIZE] [--max-category NAME=SIZE] [--max-growth SIZE/step] [options]",
     "Sizes are 40GiB, 512MiB, 1.5GB or bytes. Exit 0: all kept; 1: one is not, or ranks of the job were not recorded;\n"
     "2: it can't be told. A peak is that of the whole life: steps, and what is before, between and after them. A category\n"
     "counts with what it has at the peak of any of these. Growth is as survivors tells it. --against compares every\n"
     "rank's peak with that of a run kept before.",
     "shardledger check shardledger-out --max-peak 40GiB --max-category activation=10GiB --max-growth 1MiB/step\n"
     "shardledger check shardledger-out --against base.sqlite --tolerance 1% --junit memory.xml\n"
     "shardledger check shardledger-out --run 2 --against shardledger-out --against-run 1",
     sl_cmd_check},
    {"watch", "a running job, live: memory, step, phase, peak so far, who is behind",
     "[DIR] [--once] [--interval S] [--rank R] [--metrics FILE|ADDRESS] [options]",
     "Reads the logs only, at the lowest priority. DIR need not be there yet. What is provisional is marked with ~: "
     "its\n"
     "category is decided at the end of the step. Ends with the job, or with Ctrl-C. --json without --once prints a line\n"
     "each look.",
     "shardledger watch shardledger-out --once\nshardledger watch shardledger-out --once --json\n"
     "shardledger watch shardledger-out --metrics :9401",
     sl_cmd_watch},
    {"trim", "keep logs within their limits while a job records: drop the middle of those that come near",
     "[DIR] [--follow]",
     "Of logs that are recorded on this machine with SHARDLEDGER_AT_MAX=keep-last and SHARDLEDGER_MAX_BYTES: when "
     "three\n"
     "quarters of the limit are used, the oldest steps but the first ones go. 'shardledger run' does it by itself; "
     "where\n"
     "CUDA_INJECTION64_PATH alone attaches, start it with --follow on each machine, before the job or while it runs.\n"
     "--follow goes on until the job has ended; without it each log is looked at once. DIR need not be there yet.\n"
     "It may be stopped at any moment, and started again.",
     "shardledger trim shardledger-out\nshardledger trim shardledger-out --follow &", sl_cmd_trim},
    {"rules", "what ranges mean and who decides a category, in order", "[FILE|DIR] [options]",
     "Your own rules first: of FILE (a file of rules, which is checked, or a ledger) or those kept in DIR.\n"
     "'shardledger ingest --help' says how to write them.",
     "shardledger rules my.rules\nshardledger rules shardledger-out --csv", sl_cmd_rules},
    {"query", "ask the ledger in SQL, read-only", "SQL [DIR|FILE] [options]",
     "The tables and their columns: shardledger query \"SELECT sql FROM sqlite_schema\" --csv",
     "shardledger query \"SELECT rank, step, peak_allocated_bytes FROM step\" shardledger-out --csv", sl_cmd_query},
    {"mcp", "answer a coding assistant: a Model Context Protocol server on stdin and stdout",
     "[DIR] [--run RUN] [--skill]",
     "Tools: open_run, describe_schema, list_questions, run_question, query, explain, diff. All of them only read. An\n"
     "assistant's client starts this command; docs/serve.md has its configuration. --skill prints SKILL.md instead: for\n"
     "assistants that run commands, what to ask which.",
     "shardledger mcp --skill\nshardledger mcp shardledger-out", sl_cmd_mcp},
    {"dump", "print the log's records as text", "[DIR] [--type NAME] [--run RUN] [--rank RANKS] [--limit N]",
     "One line a record: time, thread, event, field=value …", "shardledger dump shardledger-out --type gap",
     sl_cmd_dump},
    {"doctor", "what this machine can record, and what to do about what it can't", "[-o DIR] [options]", NULL,
     "shardledger doctor", sl_cmd_doctor},
    {"completion", "print the completion of commands and options for your shell", "bash|zsh|fish",
     "An installation brings them along; for one shell only, or without:\n"
     "  bash   source <(shardledger completion bash)\n"
     "  zsh    source <(shardledger completion zsh)      after compinit\n"
     "  fish   shardledger completion fish | source",
     "shardledger completion bash > ~/.local/share/bash-completion/completions/shardledger", sl_cmd_completion},
    {"help", "explain a command", "[COMMAND]", "With --man: the manual page of all of them.",
     "shardledger help peaks\nshardledger help --man | man -l -", sl_cmd_help},
};
const int sl_command_count = sizeof(sl_commands) / sizeof(sl_commands[0]);

static void print_commands(FILE *file) {
  fprintf(file, "shardledger " SL_VERSION ": who holds GPU memory in sharded training\n\n"
                "Usage: shardledger COMMAND [arguments]\n\nCommands:\n");
  for (int i = 0; i < sl_command_count; i++)
    fprintf(file, "  %-10s  %s\n", sl_commands[i].name, sl_commands[i].line);
  fprintf(file, "\nDIR is a run directory; without it $SHARDLEDGER_DIR counts, then shardledger-out.\n"
                "'shardledger COMMAND --help' explains a command. Start with: shardledger run -- CMD\n");
}

static const struct sl_command *find_command(const char *name) {
  for (int i = 0; i < sl_command_count; i++)
    if (strcmp(sl_commands[i].name, name) == 0)
      return &sl_commands[i];

  const struct sl_command *nearest = NULL;
  int least = sl_word_slip(name) + 1;
  for (int i = 0; i < sl_command_count; i++) {
    int distance = sl_word_distance(name, sl_commands[i].name);
    if (distance < least) {
      least = distance;
      nearest = &sl_commands[i];
    }
  }
  if (nearest)
    sl_complain("there is no command '%s'; did you mean '%s'?", name, nearest->name);
  else
    sl_complain("there is no command '%s'; 'shardledger help' lists them", name);
  return NULL;
}

int sl_cmd_help(const struct sl_command *command, int argc, char **argv) {
  const char *name = NULL;
  bool man = false;
  const struct sl_argument arguments[] = {
      {"man", 0, NULL, "print the manual page, in roff", SL_ARGUMENT_FLAG, &man},
  };
  int r = sl_parse(command, arguments, 1, argc, argv, &name, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (man) {
    sl_print_manual(stdout);
    return SL_EXIT_OK;
  }
  if (r == 0) {
    print_commands(stdout);
    return SL_EXIT_OK;
  }
  command = find_command(name);
  if (!command)
    return SL_EXIT_USAGE;
  char *help[] = {(char *)command->name, "--help", NULL};
  return command->run(command, 2, help);
}

/* A file of help or completion that was not written whole is a failure too. */
static int flushed(int status) {
  if (status != SL_EXIT_OK || (fflush(stdout) == 0 && !ferror(stdout)))
    return status;
  sl_complain("the results could not be written: %s", strerror(errno));
  return SL_EXIT_USAGE;
}

int main(int argc, char **argv) {
  /* Only the encoding: numbers keep their point in every language. */
  if (!setlocale(LC_CTYPE, "") && errno == ENOMEM) {
    sl_complain("out of memory");
    return SL_EXIT_USAGE;
  }
#ifdef M_TRIM_THRESHOLD
  /* Ranks are read one after the other: what one gives back the next one takes, without the kernel in between. */
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
#endif
  /* A file that may not grow any more is an error to tell, not a death that leaves half a file. */
  signal(SIGXFSZ, SIG_IGN);

  if (argc < 2) {
    print_commands(stderr);
    return SL_EXIT_USAGE;
  }
  if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
    printf("shardledger " SL_VERSION "\n");
    return flushed(SL_EXIT_OK);
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
    argv[1] = "help";

  const struct sl_command *command = find_command(argv[1]);
  if (!command)
    return SL_EXIT_USAGE;
  int status = command->run(command, argc - 1, argv + 1);
  return command->run == sl_cmd_run || command->run == sl_cmd_rehearse ? status
                                                                       : flushed(status); /* of run it is the job's */
}
