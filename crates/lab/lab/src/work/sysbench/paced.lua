-- A script of sysbench whose transactions begin when the lab says so.
--
-- Each worker reads a number from a pipe, runs one event of the script, and writes the number to
-- another pipe. Statements, prepared ones and connections are those of the script. What replaces
-- sysbench's own loop is thread_run, which a script may define.

local ffi = require("ffi")

ffi.cdef[[
int open(const char *path, int flags, ...);
ssize_t read(int fd, void *bytes, size_t count);
ssize_t write(int fd, const void *bytes, size_t count);
]]

require(os.getenv("TIDELOCK_LAB_SCRIPT"))

local O_RDONLY, O_WRONLY = 0, 1

local function opened(variable, flags)
   local fd = ffi.C.open(os.getenv(variable), flags)
   assert(fd >= 0, "a pipe of the lab cannot be opened")
   return fd
end

-- Eight bytes are read and written as a whole: no worker gets a part of another's number.
function thread_run(thread_id)
   local due = opened("TIDELOCK_LAB_DUE", O_RDONLY)
   local done = opened("TIDELOCK_LAB_DONE", O_WRONLY)
   local number = ffi.new("uint64_t[1]")
   while ffi.C.read(due, number, 8) == 8 do
      local success, why
      repeat
         success, why = pcall(event, thread_id)
         -- A deadlock: the transaction begins again, as in sysbench's own loop.
         local again = type(why) == "table" and why.errcode == sysbench.error.RESTART_EVENT
         if not success and not again then
            error(why, 2)
         end
      until success
      ffi.C.write(done, number, 8)
   end
end
