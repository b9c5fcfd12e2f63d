/* Answers HTTP requests for one page. */
#include "serve/http.h"

#include "plugin/format/clock.h"
#include "storage/memory_file.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_NS 2000000000u /* from its first byte to our last */
enum { REQUEST_BYTES = 8192, BACKLOG = 16, HOST_CHARS = 256 };

/* ---- the address ---- */

/* host is "" where none is named. Returns the port's digits, within text; NULL: it is no address. */
static const char *address_split(const char *text, char host[HOST_CHARS]) {
  const char *colon = strrchr(text, ':');
  const char *end = colon;
  if (!colon || strchr(text, '/') || !colon[1] || colon[1 + strspn(colon + 1, "0123456789")])
    return NULL;
  if (text[0] == '[' && end > text && end[-1] == ']') {
    text++;
    end--;
  } else if (memchr(text, ':', (size_t)(colon - text))) {
    return NULL; /* an IPv6 address has brackets */
  }
  if (end - text >= HOST_CHARS)
    return NULL;
  memcpy(host, text, (size_t)(end - text));
  host[end - text] = 0;
  return colon + 1;
}

bool sl_http_is_address(const char *text) {
  char host[HOST_CHARS];
  return address_split(text, host) != NULL;
}

/* 0 or a negative errno. */
static int listen_at(const struct addrinfo *at, int *out) {
  const int yes = 1;
  int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
    const int r = -errno;
    close(fd);
    return r;
  }
  *out = fd;
  return 0;
}

/* "127.0.0.1:9401", "[::1]:9401" */
static void name_socket(int fd, char where[128]) {
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  char host[80] = "?", port[16] = "?";
  if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
    getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  const bool brackets = strchr(host, ':') != NULL;
  snprintf(where, 128, "%s%s%s:%s", brackets ? "[" : "", host, brackets ? "]" : "", port);
}

int sl_http_listen(const char *address, int *out, char where[128], struct sl_error *error) {
  char host[HOST_CHARS];
  const char *port = address_split(address, host);
  const struct addrinfo hints = {
      .ai_family = *host ? AF_UNSPEC : AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
  struct addrinfo *found = NULL;
  int r = -EADDRNOTAVAIL;
  *out = -1;
  if (!port)
    return sl_error_set(error, -EINVAL, "'%.200s' is no address such as 127.0.0.1:9401 or :9401", address);
  if (strlen(port) > 5 || strtol(port, NULL, 10) > 65535)
    return sl_error_set(error, -EINVAL, "%.10s is no port: they go to 65535", port);
  const int problem = getaddrinfo(*host ? host : "127.0.0.1", port, &hints, &found);
  if (problem)
    return sl_error_set(error, -EADDRNOTAVAIL, "%.200s: %s", host, gai_strerror(problem));
  for (const struct addrinfo *at = found; at && r < 0; at = at->ai_next)
    r = listen_at(at, out);
  freeaddrinfo(found);
  if (r == -EADDRINUSE)
    return sl_error_set(error, r, "%.200s is in use; name another port, or :0 for a free one", address);
  if (r < 0)
    return sl_error_set(error, r, "can't listen on %.200s: %s", address, strerror(-r));
  name_socket(*out, where);
  return 0;
}

/* ---- a request ---- */

/* Until the socket is ready or the time is over. Signals wait: the answer takes a moment only. */
static bool wait_ready(int fd, short events, uint64_t until_ns) {
  for (;;) {
    const uint64_t now_ns = sl_clock_ns(CLOCK_MONOTONIC);
    struct pollfd polled = {.fd = fd, .events = events};
    if (now_ns >= until_ns)
      return false;
    const int r = poll(&polled, 1, (int)((until_ns - now_ns + 999999u) / 1000000u));
    if (r > 0 || (r < 0 && errno != EINTR))
      return r > 0;
  }
}

static bool send_all(int fd, const char *data, size_t bytes, uint64_t until_ns) {
  while (bytes) {
    const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      data += sent;
      bytes -= (size_t)sent;
    } else if (errno != EINTR && (errno != EAGAIN || !wait_ready(fd, POLLOUT, until_ns))) {
      return false;
    }
  }
  return true;
}

/* The head of a request, NUL-terminated. 200: it is there; else the status to answer with; 0: nobody is there. */
static int head_read(int fd, char head[REQUEST_BYTES], uint64_t until_ns) {
  size_t used = 0;
  for (;;) {
    const ssize_t got = recv(fd, head + used, REQUEST_BYTES - 1 - used, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
      return 0;
    if (got < 0 && errno == EAGAIN && !wait_ready(fd, POLLIN, until_ns))
      return used ? 408 : 0;
    if (got < 0)
      continue;
    used += (size_t)got;
    if (memchr(head + used - got, 0, (size_t)got))
      return 400;
    head[used] = 0;
    if (strstr(head, "\r\n\r\n") || strstr(head, "\n\n"))
      return 200;
    if (used == REQUEST_BYTES - 1)
      return 431;
  }
}

/* "GET /metrics?x HTTP/1.1": whether it asks for the page. Returns the status to answer with. */
static int head_judge(const char *head, const char *path, bool *only_head) {
  const char *word = head + strcspn(head, " \r\n");
  const size_t method = (size_t)(word - head), length = *word == ' ' ? strcspn(word + 1, " ?\r\n") : 0;
  const char *version = *word == ' ' ? word + 1 + strcspn(word + 1, " \r\n") : word;
  *only_head = method == 4 && memcmp(head, "HEAD", 4) == 0;
  if (!method || !length || strncmp(version, " HTTP/1.", 8) != 0)
    return 400;
  if (!*only_head && !(method == 3 && memcmp(head, "GET", 3) == 0))
    return 405;
  return length == strlen(path) && memcmp(word + 1, path, length) == 0 ? 200 : 404;
}

static const char *status_words(int status) {
  switch (status) {
  case 200: return "OK";
  case 404: return "Not Found";
  case 405: return "Method Not Allowed";
  case 408: return "Request Timeout";
  case 431: return "Request Header Fields Too Large";
  case 503: return "Service Unavailable";
  default: return "Bad Request";
  }
}

/* The page, or in its place why there is none. Returns the status. */
static int body_write(const struct sl_http_page *page, int status, char **body, size_t *bytes) {
  struct sl_error error = {{0}};
  int r = status == 200 ? -ENOMEM : 0;
  struct sl_memory_file memory;
  FILE *file = sl_memory_file_open(&memory);
  if (status == 200 && file)
    r = page->write(page->context, file, &error);
  if (file && status != 200)
    fprintf(file, "%s; the page is %s\n", status_words(status), page->path);
  *body = sl_memory_file_close(&memory, bytes);
  if (*body && r == 0)
    return status;
  free(*body);
  *body = strdup(r < 0 && *error.text ? error.text : "out of memory");
  *bytes = *body ? strlen(*body) : 0;
  return 503;
}

static void answer(int fd, const struct sl_http_page *page) {
  const uint64_t until_ns = sl_clock_ns(CLOCK_MONOTONIC) + REQUEST_NS;
  char request[REQUEST_BYTES], head[512], *body = NULL;
  size_t bytes = 0;
  bool only_head = false;
  int status = head_read(fd, request, until_ns);
  if (status == 200)
    status = head_judge(request, page->path, &only_head);
  if (status) {
    status = body_write(page, status, &body, &bytes);
    const int length = snprintf(head, sizeof head,
                                "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sCache-Control: "
                                "no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                                status, status_words(status), status == 200 ? page->type : "text/plain; charset=utf-8",
                                bytes, status == 405 ? "Allow: GET, HEAD\r\n" : "");
    if (send_all(fd, head, (size_t)length, until_ns) && !only_head)
      send_all(fd, body, bytes, until_ns);
    shutdown(fd, SHUT_WR);
    while (recv(fd, request, sizeof request, MSG_DONTWAIT) > 0)
      ; /* what is left unread would have the answer thrown away */
  }
  free(body);
}

void sl_http_serve(int socket, const struct sl_http_page *page, uint64_t until_ns, const sigset_t *while_waiting) {
  for (uint64_t now_ns; (now_ns = sl_clock_ns(CLOCK_MONOTONIC)) < until_ns;) {
    const uint64_t left_ns = until_ns - now_ns;
    const struct timespec time = {.tv_sec = (time_t)(left_ns / 1000000000u), .tv_nsec = (long)(left_ns % 1000000000u)};
    struct pollfd polled = {.fd = socket, .events = POLLIN};
    if (ppoll(&polled, 1, &time, while_waiting) <= 0)
      return; /* the time is over, or a signal came */
    const int fd = accept4(socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
      continue;
    answer(fd, page);
    close(fd);
  }
}
