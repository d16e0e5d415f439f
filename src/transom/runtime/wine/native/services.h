/* Notifies the services of a container of its shutdown: SERVICE_CONTROL_PRESHUTDOWN, then SERVICE_CONTROL_SHUTDOWN. */
#include <windows.h>

struct shutdown {
    DWORD milliseconds; /* for services to end */
    HANDLE processes[MAXIMUM_WAIT_OBJECTS]; /* of services that accept the notification */
    DWORD count;
};

/* Whether there may be services other than Wine's own. Cheaper than a call to the service manager. */
BOOL services_run(void);

void find_services(struct shutdown *shutdown);

/* Notifies services and waits for their processes. `argument`: a struct shutdown. */
DWORD WINAPI shut_services_down(void *argument);

/* WaitToKillServiceTimeout of the registry, in milliseconds. */
DWORD registry_timeout(DWORD otherwise);
