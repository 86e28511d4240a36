/* Sends SIGTERM at the worst moment: the loop has looked for signals, and is about to wait without end.

   LD_PRELOAD=late_signal.so LATE_SIGNAL_FILE=path: the signal comes with the first epoll_wait() without a
   timeout after the file has come to be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

int epoll_wait(int poller, struct epoll_event *events, int most, int timeout_ms)
{
    static int (*real)(int, struct epoll_event *, int, int);
    static int sent;
    const char *path = getenv("LATE_SIGNAL_FILE");

    if (!real)
        real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    if (!sent && path && timeout_ms < 0 && access(path, F_OK) == 0) {
        sent = 1;
        kill(getpid(), SIGTERM);
    }
    return real(poller, events, most, timeout_ms);
}
