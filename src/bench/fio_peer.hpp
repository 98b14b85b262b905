#pragma once

#include <string>

#include <spillway/app/bench/io_job.hpp>

namespace spillway::app {

/// Why fio (the usual tool for such measurements) can't be run here; empty where it can.
[[nodiscard]] std::string fio_unavailable();

/// Moves the bytes once with fio's io_uring engine and blocks until it has. Its buffers lie on huge pages where the C
/// library knows how (glibc 2.35 and later; `--iomem` of many versions of fio does not), since that suits it best. A
/// mix is fio's own: each chunk a read or a write by chance, half of them each. The file is opened anew, through this
/// process's descriptor, for direct I/O.
/// @returns bytes per second as fio reports them. @throws Error if fio fails, with what it says.
[[nodiscard]] double run_fio(const IoJob& job);

}  // namespace spillway::app
