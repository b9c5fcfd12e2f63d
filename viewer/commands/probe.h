/* Asks a Python interpreter what it has, without importing anything heavier than it must. */
#ifndef SHARDLEDGER_PROBE_H
#define SHARDLEDGER_PROBE_H

struct sl_probe {
  char text[4096]; /* key=value, key=value, …, each NUL-terminated; then an empty one */
  char error[256]; /* why there are none; "" when there are */
};

/* Runs the interpreter, quietly, for at most a minute. */
void sl_probe_python(const char *interpreter, struct sl_probe *out);

/* The value of a key, which lives as long as the probe; "" when it is not known. */
const char *sl_probe_value(const struct sl_probe *probe, const char *key);

#endif
