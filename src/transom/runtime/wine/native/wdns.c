/* wdns.so, preloaded: names are looked up as Windows does it.
 *
 * A name with a dot in it is a complete one, which the C library would also try with the suffix of the search list.
 * `localhost` and the container's own name need no hosts file.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST 255

typedef int get_address(const char *, const char *, const struct addrinfo *, struct addrinfo **);
typedef int get_host(const char *, struct hostent *, char *, size_t, struct hostent **, int *);

static int numeric(const char *name)
{
    unsigned char address[16];
    return strchr(name, ':') || inet_aton(name, (struct in_addr *)address);
}

/* The name with its dot at the end, in `complete`, or the name itself. */
static const char *absolute(const char *name, char *complete)
{
    size_t length = name ? strlen(name) : 0;
    if (!length || length >= LONGEST || name[length - 1] == '.' || !strchr(name, '.') || numeric(name))
        return name;
    memcpy(complete, name, length);
    strcpy(complete + length, ".");
    return complete;
}

/* The address of a name that is known without asking, or NULL. TRANSOM_ADDRESS is the container's. */
static const char *own(const char *name, int family)
{
    char host[LONGEST + 1];
    if (!name)
        return NULL;
    if (strcasecmp(name, "localhost") == 0)
        return family == AF_INET6 ? "::1" : "127.0.0.1";
    const char *address = getenv("TRANSOM_ADDRESS");
    if (!address || !*address || gethostname(host, sizeof host) || strcasecmp(name, host))
        return NULL;
    return family == AF_UNSPEC || (family == AF_INET6) == !!strchr(address, ':') ? address : NULL;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    static get_address *next;
    char complete[LONGEST + 2];
    if (!next)
        next = (get_address *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (hints && hints->ai_flags & AI_NUMERICHOST)
        return next(name, service, hints, result);
    const char *address = own(name, hints ? hints->ai_family : AF_UNSPEC);
    int failure = next(address ? address : absolute(name, complete), service, hints, result);
    char *canonical = failure ? NULL : (*result)->ai_canonname;
    if (canonical && address) {
        free(canonical);
        (*result)->ai_canonname = strdup(name);
    } else if (canonical && *canonical && canonical[strlen(canonical) - 1] == '.') {
        canonical[strlen(canonical) - 1] = 0;
    }
    return failure;
}

int gethostbyname_r(const char *name, struct hostent *host, char *buffer, size_t size, struct hostent **result, int *failure)
{
    static get_host *next;
    char complete[LONGEST + 2];
    if (!next)
        next = (get_host *)dlsym(RTLD_NEXT, "gethostbyname_r");
    const char *address = own(name, AF_INET);
    int error = next(address ? address : absolute(name, complete), host, buffer, size, result, failure);
    if (address && !error && *result)
        host->h_name = (char *)name;
    return error;
}
