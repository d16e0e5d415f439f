/* wdns.so, preloaded: looks up names as Windows does.
 *
 * A name with a dot is complete; the C library would also try with the suffix of the search list.
 * `localhost` and the container's own name need no hosts file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST 255

typedef int get_address(const char *, const char *, const struct addrinfo *, struct addrinfo **);
typedef int get_host(const char *, struct hostent *, char *, size_t, struct hostent **, int *);

/* Of this thread: without the flag only names without a dot get a suffix. */
static void no_suffix_after_dots(void)
{
    if (_res.options & RES_INIT || res_init() == 0)
        _res.options &= ~RES_DNSRCH;
}

/* The address of a name that needs no DNS query, or NULL. TRANSOM_ADDRESS is the container's. */
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
    if (!next)
        next = (get_address *)dlsym(RTLD_NEXT, "getaddrinfo");
    no_suffix_after_dots();
    const char *address = own(name, hints ? hints->ai_family : AF_UNSPEC);
    int failure = next(address ? address : name, service, hints, result);
    if (address && !failure && (*result)->ai_canonname) {
        free((*result)->ai_canonname);
        (*result)->ai_canonname = strdup(name);
    }
    return failure;
}

int gethostbyname_r(const char *name, struct hostent *host, char *buffer, size_t size, struct hostent **result, int *failure)
{
    static get_host *next;
    if (!next)
        next = (get_host *)dlsym(RTLD_NEXT, "gethostbyname_r");
    no_suffix_after_dots();
    const char *address = own(name, AF_INET);
    int error = next(address ? address : name, host, buffer, size, result, failure);
    if (address && !error && *result)
        host->h_name = (char *)name;
    return error;
}
