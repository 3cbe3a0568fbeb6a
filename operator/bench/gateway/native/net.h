/* What the engine stub and the load client share: the clock, and sockets on loopback. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull

static inline uint64_t clock_ns(clockid_t clock) {
  struct timespec t = {0};
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static inline void die(const char *what) {
  perror(what);
  exit(1);
}

static inline struct sockaddr_in loopback(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

static inline void no_delay(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Wait for events until `deadline`; the kernel's timer is exact to microseconds, epoll_wait's to milliseconds. */
static inline int wait_until(int epoll, struct epoll_event *events, int most, uint64_t deadline) {
  uint64_t now = now_ns();
  uint64_t left = deadline > now ? deadline - now : 0;
  struct timespec span = {.tv_sec = (time_t)(left / SECOND), .tv_nsec = (long)(left % SECOND)};
  return epoll_pwait2(epoll, events, most, &span, NULL);
}
