/* Notifying the services of a container that it is shut down: SERVICE_CONTROL_PRESHUTDOWN, then SERVICE_CONTROL_SHUTDOWN. */
#include <windows.h>

struct shutdown {
    DWORD milliseconds; /* for services to end */
    HANDLE processes[MAXIMUM_WAIT_OBJECTS]; /* of services that want to know of it */
    DWORD count;
};

/* Whether there may be services beside Wine's own. Cheaper than to ask the service manager. */
BOOL services_run(void);

void find_services(struct shutdown *shutdown);

/* Notifies services and waits for their processes. `argument`: a struct shutdown. */
DWORD WINAPI shut_services_down(void *argument);

/* WaitToKillServiceTimeout of the registry, in milliseconds. */
DWORD registry_timeout(DWORD otherwise);
