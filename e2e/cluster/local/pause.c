/* A process that only waits: pid 1 of every local machine, and the sandbox of every pod.
   As pid 1 it must reap orphans, and it must install handlers because pid 1 ignores signals without one. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction action = {0};
  action.sa_handler = leave;
  sigaction(SIGINT, &action, 0);
  sigaction(SIGTERM, &action, 0);
  action.sa_handler = reap;
  action.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &action, 0);
  for (;;) pause();
}
