/* Stands in for prefill and decode engines: HTTP/1.1, vLLM's hand-off, no model. One thread.

     engine PORT...

   Like Steelyard's engine it does not know its role: a request with "do_remote_decode":true is a prefill call and is answered
   with hand-off data, any other is a decode call. A streamed answer has `max_tokens` events, one write each, every
   `interval_us=` microseconds (from the request's `user` field; 0 or absent: as fast as the reader takes them), a usage event
   where `include_usage` asks for one, and [DONE]. All paced streams of one run must have the same interval: the queue of
   their due times is then a plain FIFO.

   GET /stats tells what was served; any other GET is answered 200, so that health checks pass. */
#include "net.h"

enum { EVENTS = 512, READ = 65536, BACKLOG = 4096 };

struct connection {
  int fd;
  bool streaming, queued, blocked, wants_usage;
  long left;          /* events still to send */
  uint64_t interval;  /* ns between events */
  uint64_t due;       /* of the next one */
  char *in;           /* bytes of requests not served yet */
  size_t in_length, in_room;
  char *out;          /* bytes the socket did not take yet */
  size_t out_length, out_room;
  struct connection *previous, *next; /* in the queue */
};


static int epoll;
static struct connection queue = {.previous = &queue, .next = &queue};
static struct {
  long prefills, decodes, handoffs, events, connections, aborted;
} stats;

static void enqueue(struct connection *c, uint64_t due) {
  c->due = due;
  c->queued = true;
  c->previous = queue.previous;
  c->next = &queue;
  queue.previous->next = c;
  queue.previous = c;
}

static void dequeue(struct connection *c) {
  if (!c->queued) return;
  c->queued = false;
  c->previous->next = c->next;
  c->next->previous = c->previous;
}

static void drop(struct connection *c) {
  if (c->streaming) stats.aborted++;
  dequeue(c);
  close(c->fd);
  free(c->in);
  free(c->out);
  free(c);
}

static void watch(struct connection *c, bool writable) {
  c->blocked = writable;
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | (writable ? EPOLLOUT : 0u), .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
}

static void keep_unsent(struct connection *c, const char *bytes, size_t length) {
  if (c->out_length + length > c->out_room) {
    c->out_room = c->out_length + length;
    c->out = realloc(c->out, c->out_room);
  }
  memcpy(c->out + c->out_length, bytes, length);
  c->out_length += length;
}

/* Write now, or keep what the socket does not take. A broken connection shows as an event later. */
static void put(struct connection *c, const char *bytes, size_t length) {
  ssize_t sent = c->out_length ? 0 : send(c->fd, bytes, length, MSG_NOSIGNAL);
  if (sent < 0) sent = 0;
  if ((size_t)sent == length) return;
  keep_unsent(c, bytes + sent, length - (size_t)sent);
  if (!c->blocked) watch(c, true);
}

static void put_chunk(struct connection *c, const char *text) {
  char framed[1024];
  int length = snprintf(framed, sizeof framed, "%zx\r\n%s\r\n", strlen(text), text);
  put(c, framed, (size_t)length);
}

static void put_json(struct connection *c, const char *json) {
  char response[2048];
  int length = snprintf(response, sizeof response,
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", strlen(json), json);
  put(c, response, (size_t)length);
}

#define HEAD "\"object\":\"text_completion\",\"created\":1764440000,\"model\":\"bench\""

static void send_event(struct connection *c) {
  static const char token[] = "data: {\"id\":\"cmpl-1\"," HEAD
                              ",\"choices\":[{\"index\":0,\"text\":\" tok\",\"logprobs\":null,"
                              "\"finish_reason\":null,\"stop_reason\":null}],\"usage\":null}\n\n";
  static const char usage[] = "data: {\"id\":\"cmpl-1\"," HEAD
                              ",\"choices\":[],\"usage\":{\"prompt_tokens\":512,\"total_tokens\":528,\"completion_tokens\":16}}\n\n";
  stats.events++;
  put_chunk(c, token);
  if (--c->left) return;
  c->streaming = false;
  if (c->wants_usage) put_chunk(c, usage);
  put_chunk(c, "data: [DONE]\n\n");
  put(c, "0\r\n\r\n", 5);
}

/* Send the events that are due, one for each connection, and queue what comes next. */
static void send_due(uint64_t now) {
  struct connection *last = queue.previous;
  for (bool more = queue.next != &queue; more;) {
    struct connection *c = queue.next;
    if (c->due > now) return;
    more = c != last;
    dequeue(c);
    send_event(c);
    if (c->streaming && !c->blocked) enqueue(c, c->interval ? c->due + c->interval : now);
  }
}

static long number_after(const char *text, const char *name, long otherwise) {
  const char *found = strstr(text, name);
  return found ? atol(found + strlen(name)) : otherwise;
}

static void answer_post(struct connection *c, const char *body) {
  if (strstr(body, "\"do_remote_decode\":true")) {
    stats.prefills++;
    put_json(c, "{\"id\":\"cmpl-p\"," HEAD
                ",\"choices\":[{\"index\":0,\"text\":\" a\",\"logprobs\":null,\"finish_reason\":\"length\"}],"
                "\"usage\":{\"prompt_tokens\":512,\"total_tokens\":513,\"completion_tokens\":1},"
                "\"kv_transfer_params\":{\"do_remote_prefill\":true,\"do_remote_decode\":false,\"remote_block_ids\":"
                "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],\"remote_engine_id\":\"stub-engine\",\"remote_request_id\":"
                "\"cmpl-p-6c1f0a\",\"remote_host\":\"127.0.0.1\",\"remote_port\":5600,\"remote_num_tokens\":511,\"tp_size\":1}}");
    return;
  }
  stats.decodes++;
  if (strstr(body, "\"stub-engine\"")) stats.handoffs++;
  if (!strstr(body, "\"stream\":true")) {
    put_json(c, "{\"id\":\"cmpl-d\"," HEAD
                ",\"choices\":[{\"index\":0,\"text\":\" Paris. The rest of it is history.\",\"logprobs\":null,"
                "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":512,\"total_tokens\":528,\"completion_tokens\":16}}");
    return;
  }
  static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                             "transfer-encoding: chunked\r\n\r\n";
  put(c, head, sizeof head - 1);
  c->left = number_after(body, "\"max_tokens\":", 16);
  c->interval = (uint64_t)number_after(body, "interval_us=", 0) * 1000;
  c->wants_usage = strstr(body, "\"include_usage\":true") != NULL;
  c->streaming = true;
  enqueue(c, now_ns());
}

static void answer_get(struct connection *c, const char *head) {
  char json[512] = "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\"}]}";
  if (!strncmp(head, "GET /stats", 10))
    snprintf(json, sizeof json,
             "{\"prefills\":%ld,\"decodes\":%ld,\"handoffs\":%ld,\"events\":%ld,\"connections\":%ld,\"aborted\":%ld}", stats.prefills,
             stats.decodes, stats.handoffs, stats.events, stats.connections, stats.aborted);
  put_json(c, json);
}

/* Serve the requests that are complete, one at a time: while an answer streams, the next one waits. */
static void serve(struct connection *c) {
  while (!c->streaming && c->in_length) {
    c->in[c->in_length] = 0;
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end) return;
    size_t head = (size_t)(end + 4 - c->in);
    char *length = strcasestr(c->in, "content-length:");
    size_t total = head + (length && length < end ? strtoul(length + 15, NULL, 10) : 0);
    if (c->in_length < total) return;
    char kept = c->in[total];
    c->in[total] = 0;
    if (!strncmp(c->in, "POST", 4))
      answer_post(c, c->in + head);
    else
      answer_get(c, c->in);
    c->in[total] = kept;
    c->in_length -= total;
    memmove(c->in, c->in + total, c->in_length);
  }
}

/* Read what has arrived; false when the other side is gone. */
static bool take_in(struct connection *c) {
  if (c->in_length + READ > c->in_room) {
    c->in_room = c->in_length + 2 * READ;
    c->in = realloc(c->in, c->in_room + 1);
  }
  ssize_t got = recv(c->fd, c->in + c->in_length, READ, 0);
  if (got <= 0) return got < 0 && errno == EAGAIN;
  c->in_length += (size_t)got;
  serve(c);
  return true;
}

/* Write what was kept back; false when the other side is gone. */
static bool flush(struct connection *c) {
  ssize_t sent = send(c->fd, c->out, c->out_length, MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN;
  c->out_length -= (size_t)sent;
  memmove(c->out, c->out + sent, c->out_length);
  if (c->out_length) return true;
  watch(c, false);
  if (c->streaming && !c->queued) enqueue(c, now_ns());
  serve(c);
  return true;
}

static void take_connections(int fd) {
  for (int accepted; (accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
    no_delay(accepted);
    struct connection *c = calloc(1, sizeof *c);
    c->fd = accepted;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_ADD, accepted, &event);
    stats.connections++;
  }
}

static int listen_on(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  struct sockaddr_in address = loopback(port);
  if (bind(fd, (struct sockaddr *)&address, sizeof address)) die("bind");
  if (listen(fd, BACKLOG)) die("listen");
  return fd;
}

int main(int count, char **words) {
  static int listeners[64];
  int ports = count - 1;
  if (ports < 1 || ports > 64) {
    fprintf(stderr, "usage: engine PORT... (1 to 64 of them)\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  epoll = epoll_create1(0);
  for (int i = 0; i < ports; i++) {
    listeners[i] = listen_on(atoi(words[i + 1]));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listeners[i]};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listeners[i], &event);
  }
  static struct epoll_event events[EVENTS];
  for (;;) {
    uint64_t due = queue.next != &queue ? queue.next->due : now_ns() + 3600 * SECOND;
    int ready = wait_until(epoll, events, EVENTS, due);
    for (int i = 0; i < ready; i++) {
      int *listener = events[i].data.ptr;
      if (listener >= listeners && listener < listeners + ports) {
        take_connections(*listener);
        continue;
      }
      struct connection *c = events[i].data.ptr;
      bool alive = !(events[i].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP));
      if (alive && (events[i].events & EPOLLOUT)) alive = flush(c);
      if (alive && (events[i].events & EPOLLIN)) alive = take_in(c);
      if (!alive) drop(c);
    }
    send_due(now_ns());
  }
}
