// A program that stands for an interpreter: the fork server on SOCKET runs the command line in a fork of itself.
//
// Sends arguments, variables, umask, directory and standard streams, forwards signals, and ends as the fork ends.
// Becomes INTERPRETER where the server declines the command line. For a closed standard stream it sends /dev/null, and
// that it is closed.
// SOCKET and INTERPRETER are defined by the compiler's command line.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile int32_t child;

static void forward(int number) {
    if (child > 0) kill(child, number);
}

static void fail(const char *what) {
    fprintf(stderr, "fork client: %s: %s (%s)\n", what, strerror(errno), SOCKET);
    _exit(127);
}

static void append(FILE *stream, char **strings) {
    for (; *strings; strings++) fwrite(*strings, 1, strlen(*strings) + 1, stream);
}

static void send_all(int connection, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(connection, data, size, MSG_NOSIGNAL);
        if (sent <= 0) fail("send");
        data += sent;
        size -= (size_t)sent;
    }
}

// The first bytes carry the descriptors: 0, 1, 2 and the working directory.
static void send_descriptors(int connection, uint32_t size, int directory) {
    int descriptors[4] = {0, 1, 2, directory};
    char control[CMSG_SPACE(sizeof descriptors)] = {0};
    struct iovec part = {&size, sizeof size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptors);
    memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
    if (sendmsg(connection, &message, MSG_NOSIGNAL) != sizeof size) fail("sendmsg");
}

static int32_t receive(int connection) {
    int32_t number = 0;
    ssize_t got;
    do got = recv(connection, &number, sizeof number, MSG_WAITALL);
    while (got < 0 && errno == EINTR);
    if (got != sizeof number) fail("the server ended");
    return number;
}

int main(int count, char **arguments) {
    static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};
    arguments[0] = INTERPRETER;
    int closed = 0;
    for (int stream = 0; stream < 3; stream++)
        if (fcntl(stream, F_GETFD) < 0) {
            if (open("/dev/null", O_RDWR | O_CLOEXEC) != stream) fail("/dev/null");
            closed |= 1 << stream;
        }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, SOCKET, sizeof address.sun_path - 1);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int directory = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) execv(INTERPRETER, arguments);
    if (connect(connection, (struct sockaddr *)&address, sizeof address)) fail("connect");
    mode_t mask = umask(0);
    umask(mask);
    char *data;
    size_t size;
    FILE *stream = open_memstream(&data, &size);
    fprintf(stream, "%u", mask);
    fputc(0, stream);
    fprintf(stream, "%d", closed);
    fputc(0, stream);
    fprintf(stream, "%d", count - 1);
    fputc(0, stream);
    append(stream, arguments + 1);
    append(stream, environ);
    fclose(stream);
    sigset_t held;
    sigfillset(&held);
    sigprocmask(SIG_BLOCK, &held, NULL);
    send_descriptors(connection, (uint32_t)size, directory);
    send_all(connection, data, size);
    child = receive(connection);
    for (size_t each = 0; each < sizeof forwarded / sizeof *forwarded; each++) {
        struct sigaction action = {.sa_handler = forward};
        struct sigaction before;
        sigaction(forwarded[each], NULL, &before);
        if (child > 0 && before.sa_handler != SIG_IGN) sigaction(forwarded[each], &action, NULL);
    }
    sigprocmask(SIG_UNBLOCK, &held, NULL);
    if (child < 0) {
        execv(INTERPRETER, arguments);
        fail("execv");
    }
    int32_t status = receive(connection);
    if (WIFSIGNALED(status)) {
        prctl(PR_SET_DUMPABLE, 0);  // no core file of this program
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}
