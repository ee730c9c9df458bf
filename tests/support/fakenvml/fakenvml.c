/* A fake libnvidia-ml.so.1, for tests on machines without an NVIDIA GPU.
 *
 * nvidia-ml-py loads and calls it. The INI file in FAKE_NVML_CONFIG contains the values that it returns:
 *
 *   [system]
 *   driver_version = 580.159.04
 *   nvml_version = 13.580.159.04
 *   cuda = 13000
 *   count = 2
 *   fail.nvmlInitWithFlags = 18          this call returns NVML error 18
 *   hang.nvmlInitWithFlags = 1           this call never returns
 *   [gpu]                                values of all GPUs
 *   name = NVIDIA H200
 *   [gpu1]                               values of GPU 1 only
 *   fail = 15                            every call for it returns 15
 *   fail.nvmlDeviceGetEccMode = 4
 *
 * A call whose key is not in the file returns NOT_SUPPORTED, as a real GPU without that feature does.
 * A symbol is omitted by compiling with -Dsymbol=omitted_symbol.
 *
 * Structures and return codes follow nvml.h, which NVIDIA keeps stable (NVML API Reference Guide).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Result;
typedef unsigned int uint;
typedef unsigned long long ulonglong;
typedef struct { int index; } *Device;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    ARGUMENT_VERSION_MISMATCH = 25,
};

#define MAX_GPUS 16
#define MAX_ENTRIES 1024
#define SYSTEM (-1)

/* ---- the configuration ---- */

static struct { char section[32], key[96], value[128]; } entries[MAX_ENTRIES];
static int entry_count = -1;

static char *trimmed(char *text)
{
    while (*text == ' ')
        text++;
    size_t length = strcspn(text, "\r\n");
    while (length > 0 && text[length - 1] == ' ')
        length--;
    text[length] = '\0';
    return text;
}

static void load_configuration(void)
{
    const char *path = getenv("FAKE_NVML_CONFIG");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) {
        fprintf(stderr, "fakenvml: cannot read FAKE_NVML_CONFIG=%s\n", path ? path : "");
        abort();
    }
    char buffer[256], section[32] = "system";
    entry_count = 0;
    while (fgets(buffer, sizeof buffer, file) && entry_count < MAX_ENTRIES) {
        char *line = trimmed(buffer), *equals = strchr(line, '=');
        if (sscanf(line, "[%31[^]]]", section) == 1 || *line == '#' || !equals)
            continue;
        *equals = '\0';
        snprintf(entries[entry_count].section, sizeof entries->section, "%s", section);
        snprintf(entries[entry_count].key, sizeof entries->key, "%s", trimmed(line));
        snprintf(entries[entry_count].value, sizeof entries->value, "%s", trimmed(equals + 1));
        entry_count++;
    }
    fclose(file);
}

static const char *look_up(const char *section, const char *key)
{
    if (entry_count < 0)
        load_configuration();
    for (int i = 0; i < entry_count; i++)
        if (!strcmp(entries[i].section, section) && !strcmp(entries[i].key, key))
            return entries[i].value;
    return NULL;
}

/* A setting of one GPU, otherwise of all GPUs; or of the system. */
static const char *setting(int gpu, const char *key)
{
    if (gpu == SYSTEM)
        return look_up("system", key);
    char section[32];
    snprintf(section, sizeof section, "gpu%d", gpu);
    const char *value = look_up(section, key);
    return value ? value : look_up("gpu", key);
}

static ulonglong number(int gpu, const char *key)
{
    const char *value = setting(gpu, key);
    return value ? strtoull(value, NULL, 0) : 0;
}

/* ---- the start of every call ---- */

static int initialized;
static struct { int index; } devices[MAX_GPUS];

/* Hangs or fails if configured, for this call or for all calls for this GPU. */
static Result ordered(int gpu, const char *symbol)
{
    char hang[96], fail[96];
    snprintf(hang, sizeof hang, "hang.%s", symbol);
    snprintf(fail, sizeof fail, "fail.%s", symbol);
    while (setting(gpu, hang))
        pause();
    return (Result)(setting(gpu, fail) ? number(gpu, fail) : number(gpu, "fail"));
}

/* __func__ is the name of the exported symbol, which is the key in the file. */
#define ENTER(gpu)                                      \
    do {                                                \
        if (!initialized)                               \
            return UNINITIALIZED;                       \
        Result ordered_result = ordered(gpu, __func__); \
        if (ordered_result)                             \
            return ordered_result;                      \
    } while (0)

static Result give_text(int gpu, const char *key, char *buffer, uint size)
{
    const char *value = setting(gpu, key);
    if (!value)
        return NOT_SUPPORTED;
    if (strlen(value) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return SUCCESS;
}

static Result give_uint(int gpu, const char *key, uint *out)
{
    if (!setting(gpu, key))
        return NOT_SUPPORTED;
    *out = (uint)number(gpu, key);
    return SUCCESS;
}

static Result give_ulonglong(int gpu, const char *key, ulonglong *out)
{
    if (!setting(gpu, key))
        return NOT_SUPPORTED;
    *out = number(gpu, key);
    return SUCCESS;
}

/* ---- library and system ---- */

Result nvmlInitWithFlags(uint flags)
{
    (void)flags;
    Result result = ordered(SYSTEM, __func__);
    if (result == SUCCESS)
        initialized++;
    return result;
}

const char *nvmlErrorString(Result result)
{
    switch (result) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

#define SYSTEM_CALL(symbol, answer, ...) \
    Result symbol(__VA_ARGS__)           \
    {                                    \
        ENTER(SYSTEM);                   \
        return answer;                   \
    }

SYSTEM_CALL(nvmlShutdown, (initialized--, SUCCESS), void)
SYSTEM_CALL(nvmlSystemGetDriverVersion, give_text(SYSTEM, "driver_version", text, size), char *text, uint size)
SYSTEM_CALL(nvmlSystemGetCudaDriverVersion_v2, give_uint(SYSTEM, "cuda", number), uint *number)
SYSTEM_CALL(nvmlDeviceGetCount_v2, give_uint(SYSTEM, "count", number), uint *number)

/* Works without nvmlInit, like the real one: nvidia-smi prints it with "Driver/library version mismatch". */
Result nvmlSystemGetNVMLVersion(char *version, uint size)
{
    Result result = ordered(SYSTEM, __func__);
    return result ? result : give_text(SYSTEM, "nvml_version", version, size);
}

Result nvmlDeviceGetHandleByIndex_v2(uint index, Device *device)
{
    if (index >= number(SYSTEM, "count") || index >= MAX_GPUS)
        return INVALID_ARGUMENT;
    ENTER((int)index);
    devices[index].index = (int)index;
    *device = (Device)&devices[index];
    return SUCCESS;
}

/* ---- calls that return one value ---- */

#define CALL(symbol, answer, ...)             \
    Result symbol(Device device, __VA_ARGS__) \
    {                                         \
        ENTER(device->index);                 \
        int gpu = device->index;              \
        return answer;                        \
    }
#define TEXT_CALL(symbol, key) CALL(symbol, give_text(gpu, key, buffer, size), char *buffer, uint size)
#define UINT_CALL(symbol, key) CALL(symbol, give_uint(gpu, key, out), uint *out)
#define ULONGLONG_CALL(symbol, key) CALL(symbol, give_ulonglong(gpu, key, out), ulonglong *out)
/* The current mode and the mode after the next reset, which are equal here. */
#define MODE_CALL(symbol, key) \
    CALL(symbol, give_uint(gpu, key, now) ? NOT_SUPPORTED : give_uint(gpu, key, later), uint *now, uint *later)
#define INDEXED_CALL(symbol, key) CALL(symbol, give_indexed(gpu, key, which, out), int which, uint *out)
#define PROCESSES_CALL(symbol, key) \
    CALL(symbol, give_processes(gpu, key, count, processes), uint *count, ProcessInfo *processes)

/* `which` is a clock domain or a sensor: key "clock.1". */
static Result give_indexed(int gpu, const char *prefix, int which, uint *out)
{
    char key[32];
    snprintf(key, sizeof key, "%s.%d", prefix, which);
    return give_uint(gpu, key, out);
}

typedef struct { uint pid; ulonglong memory; uint gpu_instance, compute_instance; } ProcessInfo;

/* "1234:1048576 1300:-": process 1300 with unknown memory. */
static Result give_processes(int gpu, const char *key, uint *count, ProcessInfo *processes)
{
    const char *text = setting(gpu, key);
    if (!text)
        return NOT_SUPPORTED;
    uint found = 0;
    for (const char *entry = strchr(text, ':'); entry; entry = strchr(entry + 1, ':'))
        found++;
    uint room = *count;
    *count = found;
    if (found > room)
        return INSUFFICIENT_SIZE;
    for (uint i = 0; i < found; i++) {
        char *rest;
        processes[i].pid = (uint)strtoul(text, &rest, 10);
        processes[i].memory = rest[1] == '-' ? ~0ull : strtoull(rest + 1, NULL, 10);
        text = rest + 1 + strcspn(rest + 1, " ");
    }
    return SUCCESS;
}

TEXT_CALL(nvmlDeviceGetName, "name")
TEXT_CALL(nvmlDeviceGetUUID, "uuid")
UINT_CALL(nvmlDeviceGetComputeMode, "compute_mode")
UINT_CALL(nvmlDeviceGetPersistenceMode, "persistence")
UINT_CALL(nvmlDeviceGetPowerUsage, "power_mw")
UINT_CALL(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
UINT_CALL(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
UINT_CALL(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
UINT_CALL(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_generation")
UINT_CALL(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UINT_CALL(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")
ULONGLONG_CALL(nvmlDeviceGetCurrentClocksEventReasons, "clock_reasons")
ULONGLONG_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, "clock_reasons")
MODE_CALL(nvmlDeviceGetEccMode, "ecc")
MODE_CALL(nvmlDeviceGetMigMode, "mig")
INDEXED_CALL(nvmlDeviceGetClockInfo, "clock")
INDEXED_CALL(nvmlDeviceGetMaxClockInfo, "max_clock")
INDEXED_CALL(nvmlDeviceGetTemperature, "temperature")
UINT_CALL(nvmlDeviceGetC2cModeInfoV, "c2c")
PROCESSES_CALL(nvmlDeviceGetComputeRunningProcesses_v3, "compute_processes")
PROCESSES_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics_processes")
PROCESSES_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps_processes")

/* ---- calls that return several values or a versioned structure ---- */

Result nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    ENTER(device->index);
    const char *capability = setting(device->index, "compute_capability"); /* "9.0" */
    return capability && sscanf(capability, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

Result nvmlDeviceGetTotalEccErrors(Device device, int type, int counter, ulonglong *count)
{
    char key[32];
    ENTER(device->index);
    snprintf(key, sizeof key, "ecc_errors.%d.%d", type, counter);
    return give_ulonglong(device->index, key, count);
}

Result nvmlDeviceGetRemappedRows(Device device, uint *correctable, uint *uncorrectable, uint *pending, uint *failed)
{
    ENTER(device->index);
    const char *rows = setting(device->index, "remapped_rows"); /* "0 2 1 0" */
    int found = rows ? sscanf(rows, "%u %u %u %u", correctable, uncorrectable, pending, failed) : 0;
    return found == 4 ? SUCCESS : NOT_SUPPORTED;
}

Result nvmlDeviceGetNvLinkState(Device device, uint link, uint *active)
{
    ENTER(device->index);
    const char *links = setting(device->index, "nvlinks"); /* one digit per link, "1101": the third is down */
    if (!links)
        return NOT_SUPPORTED;
    if (link >= strlen(links))
        return INVALID_ARGUMENT;
    *active = links[link] == '1';
    return SUCCESS;
}

typedef struct { uint gpu, memory; } Utilization;

/* Percent of the last sampling period: "utilization = 97". */
CALL(nvmlDeviceGetUtilizationRates, give_uint(gpu, "utilization", &rates->gpu), Utilization *rates)

typedef struct {
    char bus_id_legacy[16];
    uint domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

CALL(nvmlDeviceGetPciInfo_v3, give_text(gpu, "pci_bus", info->bus_id, sizeof info->bus_id), PciInfo *info)

typedef struct { ulonglong total, free, used; } Memory;
typedef struct { uint version; ulonglong total, reserved, free, used; } Memory_v2;

static Result give_memory(int gpu, ulonglong *total, ulonglong *used)
{
    Result result = give_ulonglong(gpu, "memory_total", total);
    return result ? result : give_ulonglong(gpu, "memory_used", used);
}

Result nvmlDeviceGetMemoryInfo(Device device, Memory *memory)
{
    ENTER(device->index);
    Result result = give_memory(device->index, &memory->total, &memory->used);
    memory->used += number(device->index, "memory_reserved"); /* version 1 does not separate them */
    return result;
}

Result nvmlDeviceGetMemoryInfo_v2(Device device, Memory_v2 *memory)
{
    ENTER(device->index);
    if (memory->version != (2u << 24 | sizeof *memory))
        return ARGUMENT_VERSION_MISMATCH;
    memory->reserved = number(device->index, "memory_reserved");
    return give_memory(device->index, &memory->total, &memory->used);
}

typedef struct { uint version; int sensor, temperature; } Temperature;

Result nvmlDeviceGetTemperatureV(Device device, Temperature *answer)
{
    ENTER(device->index);
    if (answer->version != (1u << 24 | sizeof *answer))
        return ARGUMENT_VERSION_MISMATCH;
    return give_uint(device->index, "temperature.0", (uint *)&answer->temperature);
}

typedef struct { unsigned char cluster[16]; Result status; uint clique; unsigned char state; } FabricInfo;
typedef struct {
    uint version;
    unsigned char cluster[16];
    Result status;
    uint clique;
    unsigned char state;
    uint health;
} FabricInfo_v2;

static Result give_fabric(int gpu, unsigned char *state, Result *status)
{
    if (!setting(gpu, "fabric_state"))
        return NOT_SUPPORTED;
    *state = (unsigned char)number(gpu, "fabric_state");
    *status = (Result)number(gpu, "fabric_status");
    return SUCCESS;
}

CALL(nvmlDeviceGetGpuFabricInfo, give_fabric(gpu, &info->state, &info->status), FabricInfo *info)

Result nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfo_v2 *info)
{
    ENTER(device->index);
    if (info->version != (2u << 24 | sizeof *info))
        return ARGUMENT_VERSION_MISMATCH;
    return give_fabric(device->index, &info->state, &info->status);
}
