/* A load client that costs little itself: one thread, kept-alive connections, every request accounted for.

     load NAME=VALUE...
       port         where the requests go
       pid          process whose CPU time is read at both ends of the measured window (0: none)
       direct       1: make the prefill and the decode call itself, as a client without a gateway would
       streams      closed loop: so many requests at once, begun over `ramp` seconds; `rate` is 0 then
       rate         open loop: Poisson arrivals per second; time to first byte counts from the due arrival
       warm         seconds before the measured window
       seconds      of the measured window
       stream       1: streamed answers, of `tokens` events every `interval_us` microseconds (0: flat out)
       prompt       bytes of a prompt; each begins with its own number, so that no two have the same prefix

   No request begins after the window; those under way are waited for, up to 15 s. Prints one JSON object. */
#include "net.h"

#include <math.h>

enum { EVENTS = 512, READ = 262144, HEAD = 4096, DRAIN = 15, SERIAL = 10 };

struct settings {
  long port, pid, direct, streams, stream, tokens, interval_us, prompt;
  double rate, ramp, warm, seconds;
};

struct template { /* a request's bytes, and where the prompt's number is in them */
  char *bytes;
  size_t length, serial_at;
};

struct connection {
  int fd;
  bool busy, prefilling, in_head, chunked, ends_in_newline;
  int status;
  uint64_t due, first;  /* when the request was to begin; its answer's first byte (0: none yet) */
  long length, got;     /* of the body: announced (-1: not), received */
  long events, frames;  /* server-sent events received, and HTTP chunks that ended with one */
  size_t head_length, tail_length;
  char head[HEAD + 1], tail[8];
};

struct figures { /* read at both ends of the window */
  uint64_t at, subject_cpu, own_cpu;
  long rss;
};

static struct settings set = {.tokens = 16, .prompt = 2000, .seconds = 1};
static struct template prefill, answer;
static int epoll;
static struct connection **idle;
static long idle_count, idle_room;
static uint64_t window_start, window_end;
static long issued, completed, failed, under_way, most_under_way, window_completed, window_events, window_frames;
static const char *first_failure = "";
static double *ttft, *lag;
static long ttft_count, ttft_room, lag_count, lag_room;

static void note(double **list, long *count, long *room, double value) {
  if (*count == *room) {
    *room = *room ? 2 * *room : 4096;
    *list = realloc(*list, (size_t)*room * sizeof **list);
  }
  (*list)[(*count)++] = value;
}

static bool measured(uint64_t at) { return at >= window_start && at < window_end; }

/* --- requests */

static struct template make_template(const char *more) {
  size_t prompt = (size_t)set.prompt, room = prompt + 4096;
  char *body = malloc(room);
  size_t at = (size_t)snprintf(body, room, "{\"model\":\"bench\",\"prompt\":\"");
  size_t serial = at;
  for (size_t i = 0; i < prompt; i++) body[at++] = i % 6 == 5 ? ' ' : (char)('a' + i % 26);
  at += (size_t)snprintf(body + at, room - at, "\",\"max_tokens\":%ld,\"temperature\":0.0,\"stream\":%s,\"user\":\"interval_us=%ld\"%s}",
                         set.tokens, set.stream ? "true" : "false", set.interval_us, more);
  struct template t = {.bytes = malloc(room + 512)};
  int head = snprintf(t.bytes, room + 512,
                      "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:%ld\r\nuser-agent: bench\r\naccept: */*\r\n"
                      "content-type: application/json\r\nauthorization: Bearer none\r\ncontent-length: %zu\r\n\r\n",
                      set.port, at);
  memcpy(t.bytes + head, body, at);
  t.length = (size_t)head + at;
  t.serial_at = (size_t)head + serial;
  free(body);
  return t;
}

static struct connection *connect_to_subject(void) {
  struct connection *c = calloc(1, sizeof *c);
  struct sockaddr_in address = loopback((int)set.port);
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) {
    close(c->fd);
    free(c);
    return NULL;
  }
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  no_delay(c->fd);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
  return c;
}

static void fail(const char *why) {
  failed++;
  if (!*first_failure) first_failure = why;
}

static bool send_call(struct connection *c, const struct template *t) {
  c->busy = c->in_head = true;
  c->chunked = c->ends_in_newline = false;
  c->status = 0;
  c->length = -1;
  c->got = c->events = c->frames = 0;
  c->head_length = c->tail_length = 0;
  return send(c->fd, t->bytes, t->length, MSG_NOSIGNAL) == (ssize_t)t->length;
}

static void begin(uint64_t due) {
  char number[32];
  struct connection *c = idle_count ? idle[--idle_count] : connect_to_subject();
  issued++;
  if (!c) {
    fail("connection refused");
    return;
  }
  snprintf(number, sizeof number, "%0*ld", SERIAL, issued);
  memcpy(prefill.bytes + prefill.serial_at, number, SERIAL);
  memcpy(answer.bytes + answer.serial_at, number, SERIAL);
  c->due = due;
  c->first = 0;
  c->prefilling = set.direct;
  if (++under_way > most_under_way) most_under_way = under_way;
  note(&lag, &lag_count, &lag_room, (double)(now_ns() - due) / 1e3);
  if (!send_call(c, set.direct ? &prefill : &answer)) shutdown(c->fd, SHUT_RDWR); /* read next as a broken connection */
}

/* --- answers */

static void put_back(struct connection *c) {
  c->busy = false;
  if (idle_count == idle_room) {
    idle_room = idle_room ? 2 * idle_room : 1024;
    idle = realloc(idle, (size_t)idle_room * sizeof *idle);
  }
  idle[idle_count++] = c;
}

static void request_over(uint64_t now, const char *failure, const struct connection *c) {
  under_way--;
  if (failure) {
    fail(failure);
  } else {
    completed++;
    if (measured(now)) window_completed++;
    if (measured(c->due)) note(&ttft, &ttft_count, &ttft_room, (double)(c->first - c->due) / 1e3);
  }
}

static void answer_complete(struct connection *c, uint64_t now) {
  if (c->prefilling && c->status == 200) {
    c->prefilling = false;
    c->first = 0;
    if (!send_call(c, &answer)) shutdown(c->fd, SHUT_RDWR);
    return;
  }
  const char *failure = c->status != 200 ? "status" : set.stream && c->events != set.tokens + 1 ? "events missing" : NULL;
  request_over(now, failure, c);
  put_back(c);
  if (!set.rate && now < window_end) begin(now);
}

static void connection_over(struct connection *c) {
  if (c->busy) {
    request_over(now_ns(), "connection closed", c);
  } else {
    for (long i = 0; i < idle_count; i++)
      if (idle[i] == c) {
        idle[i] = idle[--idle_count];
        break;
      }
  }
  close(c->fd);
  free(c);
}

static long count_events(struct connection *c, const char *bytes, size_t length) {
  long found = c->ends_in_newline && bytes[0] == '\n';
  const char *end = bytes + length;
  for (const char *at = bytes; (at = memmem(at, (size_t)(end - at), "\n\n", 2)); at += 2) {
    found++;
    if (end - at > 2 && at[2] == '\r') c->frames++; /* the few that fall between two reads are left out */
  }
  c->ends_in_newline = bytes[length - 1] == '\n';
  return found;
}

/* Whether a chunked body ends here: its last bytes, over reads of any size, are the last chunk. */
static bool last_chunk(struct connection *c, const char *bytes, size_t length) {
  static const char end[] = "\r\n0\r\n\r\n";
  enum { END = sizeof end - 1 };
  char joined[2 * END];
  size_t fresh = length < END ? length : END;
  memcpy(joined, c->tail, c->tail_length);
  memcpy(joined + c->tail_length, bytes + length - fresh, fresh);
  size_t total = c->tail_length + fresh, keep = total < END ? total : END;
  memcpy(c->tail, joined + total - keep, keep);
  c->tail_length = keep;
  return keep == END && !memcmp(c->tail, end, END);
}

static void take_body(struct connection *c, const char *bytes, size_t length, uint64_t now) {
  if (!c->first) c->first = now;
  c->got += (long)length;
  if (!c->chunked) {
    if (c->length >= 0 && c->got >= c->length) answer_complete(c, now);
    return;
  }
  long frames = c->frames, events = count_events(c, bytes, length);
  c->events += events;
  if (measured(now)) {
    window_events += events;
    window_frames += c->frames - frames;
  }
  if (last_chunk(c, bytes, length)) answer_complete(c, now);
}

static void take_in(struct connection *c, const char *bytes, size_t length, uint64_t now) {
  if (c->in_head) {
    size_t old = c->head_length, take = length < HEAD - old ? length : HEAD - old;
    memcpy(c->head + old, bytes, take);
    c->head_length += take;
    c->head[c->head_length] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) return;
    size_t used = (size_t)(end + 4 - c->head) - old;
    *end = 0;
    c->status = atoi(c->head + 9);
    char *announced = strcasestr(c->head, "content-length:");
    if (announced) c->length = atol(announced + 15);
    c->chunked = strcasestr(c->head, "transfer-encoding: chunked") != NULL;
    c->in_head = false;
    bytes += used;
    length -= used;
  }
  if (length || c->length == 0) take_body(c, bytes, length, now);
}

/* --- the run */

static struct figures read_figures(void) {
  struct figures f = {.at = now_ns(), .own_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID)};
  clockid_t clock;
  if (!set.pid) return f;
  if (!clock_getcpuclockid((pid_t)set.pid, &clock)) f.subject_cpu = clock_ns(clock);
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/statm", set.pid);
  FILE *file = fopen(path, "r");
  if (file) {
    if (fscanf(file, "%*d %ld", &f.rss) != 1) f.rss = 0;
    f.rss *= sysconf(_SC_PAGESIZE);
    fclose(file);
  }
  return f;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double share(const double *sorted, long count, double p) { return count ? sorted[(long)(p * (double)(count - 1))] : 0; }

static void report(struct figures before, struct figures start, struct figures end) {
  qsort(ttft, (size_t)ttft_count, sizeof *ttft, ascending);
  qsort(lag, (size_t)lag_count, sizeof *lag, ascending);
  printf("{\"issued\":%ld,\"completed\":%ld,\"failed\":%ld,\"unfinished\":%ld,\"first_failure\":\"%s\",\"most_under_way\":%ld,"
         "\"window_seconds\":%.6f,\"window_completed\":%ld,\"window_events\":%ld,\"window_frames\":%ld,"
         "\"cpu_seconds\":%.6f,\"client_cpu_seconds\":%.6f,"
         "\"ttft_p50_us\":%.1f,\"ttft_p99_us\":%.1f,\"lag_p99_us\":%.1f,\"rss_before\":%ld,\"rss_in_window\":%ld}\n",
         issued, completed, failed, under_way, first_failure, most_under_way, (double)(end.at - start.at) / SECOND, window_completed,
         window_events, window_frames, (double)(end.subject_cpu - start.subject_cpu) / SECOND, (double)(end.own_cpu - start.own_cpu) / SECOND,
         share(ttft, ttft_count, 0.5), share(ttft, ttft_count, 0.99), share(lag, lag_count, 0.99), before.rss, end.rss);
}

static void drive(void) {
  static struct epoll_event events[EVENTS];
  static char bytes[READ];
  uint64_t start = now_ns(), next = start, stop;
  window_start = start + (uint64_t)(set.warm * SECOND);
  window_end = window_start + (uint64_t)(set.seconds * SECOND);
  stop = window_end + DRAIN * SECOND;
  struct figures before = read_figures(), opened = {0}, closed = {0};
  long begun = 0;
  for (;;) {
    uint64_t now = now_ns();
    if (!opened.at && now >= window_start) opened = read_figures();
    if (!closed.at && now >= window_end) closed = read_figures();
    if (closed.at && (!under_way || now >= stop)) break;
    bool more = set.rate > 0 || begun < set.streams;
    for (int burst = 0; more && burst < 64 && next <= now && next < window_end; burst++) {
      begin(set.rate > 0 ? next : now);
      begun++;
      next += (uint64_t)(set.rate > 0 ? -log(1 - drand48()) / set.rate * SECOND : set.ramp / (double)set.streams * SECOND);
      more = set.rate > 0 || begun < set.streams;
    }
    uint64_t wake = !opened.at ? window_start : !closed.at ? window_end : stop;
    if (more && next < wake) wake = next;
    int ready = wait_until(epoll, events, EVENTS, wake);
    for (int i = 0; i < ready; i++) {
      struct connection *c = events[i].data.ptr;
      ssize_t got = recv(c->fd, bytes, sizeof bytes, 0);
      if (got > 0)
        take_in(c, bytes, (size_t)got, now_ns());
      else if (got == 0 || errno != EAGAIN)
        connection_over(c);
    }
  }
  report(before, opened, closed);
}

static void read_setting(const char *word) {
  struct {
    const char *name;
    long *whole;
    double *real;
  } known[] = {
      {"port", &set.port, 0},     {"pid", &set.pid, 0},       {"direct", &set.direct, 0},           {"streams", &set.streams, 0},
      {"stream", &set.stream, 0}, {"tokens", &set.tokens, 0}, {"interval_us", &set.interval_us, 0}, {"prompt", &set.prompt, 0},
      {"rate", 0, &set.rate},     {"ramp", 0, &set.ramp},     {"warm", 0, &set.warm},               {"seconds", 0, &set.seconds},
  };
  const char *equals = strchr(word, '=');
  for (size_t i = 0; equals && i < sizeof known / sizeof *known; i++) {
    size_t length = strlen(known[i].name);
    if ((size_t)(equals - word) != length || strncmp(word, known[i].name, length)) continue;
    if (known[i].whole) *known[i].whole = atol(equals + 1);
    if (known[i].real) *known[i].real = atof(equals + 1);
    return;
  }
  fprintf(stderr, "load: %s is not a setting; see the head of load.c\n", word);
  exit(2);
}

int main(int count, char **words) {
  signal(SIGPIPE, SIG_IGN);
  for (int i = 1; i < count; i++) read_setting(words[i]);
  if (!set.port || (set.rate > 0) == (set.streams > 0) || set.prompt < SERIAL) {
    fprintf(stderr, "load: needs port, either rate or streams, and a prompt of at least %d bytes\n", SERIAL);
    return 2;
  }
  srand48(7); /* the same arrivals for every subject */
  prefill = make_template(",\"kv_transfer_params\":{\"do_remote_decode\":true,\"do_remote_prefill\":false}");
  answer = make_template(set.direct ? ",\"kv_transfer_params\":{\"remote_engine_id\":\"stub-engine\",\"remote_block_ids\":[1,2,3]}" : "");
  epoll = epoll_create1(0);
  drive();
  return 0;
}
