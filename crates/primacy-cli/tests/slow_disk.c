// A disk that takes its time: while the file $SLOW_DISK exists, flushes of log segments wait. The first one that waits makes
// the file $SLOW_DISK.waits.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_segment(int fd)
{
	char link[64], name[4096];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, name, sizeof name - 1);
	if (length <= 0)
		return 0;
	name[length] = 0;
	return strstr(name, ".segment") != NULL;
}

int fdatasync(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	const char *flag = getenv("SLOW_DISK");
	if (flag && access(flag, F_OK) == 0 && is_segment(fd)) {
		char waits[4096];
		snprintf(waits, sizeof waits, "%s.waits", flag);
		close(open(waits, O_CREAT | O_WRONLY, 0600));
		while (access(flag, F_OK) == 0)
			usleep(1000);
	}
	return real(fd);
}
