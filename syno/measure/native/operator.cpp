// PyTorch's operator `syno::native`, by its stable ABI: a call of a native kernel, which it finds by its name.
//
// With SYNO_PACKAGE, it is a function that packages of AOTInductor hold and call, and PyTorch does not know of it.
#include <omp.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#ifndef SYNO_OPERATOR
#define SYNO_OPERATOR "native"
#endif

namespace {

using torch::stable::Tensor;
using Function = void (*)(const float* x, const float* w, float* y, const float* scale, const float* shift,
                          const float* residual, float* scratch, long samples, int threads);

struct Kernel {
  Function function;
  int64_t scratch;   // floats for each thread
  int64_t elements;  // of the input
};

std::shared_mutex guard;
std::unordered_map<std::string, Kernel>& kernels() {
  static std::unordered_map<std::string, Kernel> table;
  return table;
}

Kernel found(const std::string& name) {
  std::shared_lock<std::shared_mutex> lock(guard);
  const auto place = kernels().find(name);
  STD_TORCH_CHECK(place != kernels().end(), "syno::native: the kernel ", name, " is not loaded in this process");
  return place->second;
}

// Memory of this thread, at a multiple of 64 bytes, which grows and is used again.
float* scratch(int64_t floats) {
  struct Memory {
    float* start = nullptr;
    int64_t floats = 0;
    ~Memory() { std::free(start); }
  };
  static thread_local Memory memory;
  if (memory.floats < floats) {
    std::free(memory.start);
    memory.floats = (floats + 15) / 16 * 16;
    memory.start = static_cast<float*>(std::aligned_alloc(64, 4 * memory.floats));
    if (!memory.start) memory.floats = 0;
    STD_TORCH_CHECK(memory.start, "syno::native: no memory for ", floats, " floats");
  }
  return memory.start;
}

Tensor usable(const Tensor& given, const char* name) {
  STD_TORCH_CHECK(given.is_cpu() && given.scalar_type() == torch::headeronly::ScalarType::Float,
                  "syno::native: ", name, " must be float32 on the CPU");
  return given.is_contiguous() ? given : torch::stable::contiguous(given);
}

Tensor native(Tensor x, Tensor factors, std::optional<Tensor> scale, std::optional<Tensor> shift,
              std::optional<Tensor> residual, std::string name, std::vector<int64_t> shape, int64_t samples) {
  const Kernel kernel = found(name);
  x = usable(x, "the input");
  STD_TORCH_CHECK(x.numel() == kernel.elements, "syno::native: the input has ", x.numel(), " elements, where ", name,
                  " takes ", kernel.elements);
  if (residual) *residual = usable(*residual, "the residual");
  std::vector<int64_t> strides(shape.size());
  int64_t elements = 1;
  for (size_t axis = shape.size(); axis-- > 0; elements *= shape[axis]) strides[axis] = elements;
  AtenTensorHandle made;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(shape.size(), shape.data(), strides.data(), aoti_torch_dtype_float32(),
                                                         aoti_torch_device_type_cpu(), 0, &made));
  Tensor y(made);
  const auto data = [](const std::optional<Tensor>& given) {
    return given ? static_cast<const float*>(given->data_ptr()) : nullptr;
  };
  const int threads = omp_get_max_threads();
  kernel.function(static_cast<const float*>(x.data_ptr()), static_cast<const float*>(factors.data_ptr()),
                  static_cast<float*>(y.data_ptr()), data(scale), data(shift), data(residual),
                  scratch(kernel.scratch * threads), samples, threads);
  return y;
}

}  // namespace

extern "C" void syno_register(const char* name, void* function, int64_t scratch, int64_t elements) {
  std::unique_lock<std::shared_mutex> lock(guard);
  kernels()[name] = Kernel{reinterpret_cast<Function>(function), scratch, elements};
}

#ifndef SYNO_PACKAGE
STABLE_TORCH_LIBRARY_FRAGMENT(syno, m) {
  m.def(SYNO_OPERATOR
        "(Tensor x, Tensor factors, Tensor? scale, Tensor? shift, Tensor? residual, str kernel, int[] shape, int samples) "
        "-> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(syno, CPU, m) { m.impl(SYNO_OPERATOR, TORCH_BOX(&native)); }
#else
extern "C" AOTITorchError SYNO_PACKAGE(AtenTensorHandle x, AtenTensorHandle factors, AtenTensorHandle* scale,
                                       AtenTensorHandle* shift, AtenTensorHandle* residual, const char* kernel,
                                       const int64_t* shape, int64_t axes, int64_t samples, AtenTensorHandle* y) {
  const auto of = [](AtenTensorHandle given) {  // the caller keeps its own
    AtenTensorHandle made;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(given, &made));
    return Tensor(made);
  };
  const auto if_any = [&](AtenTensorHandle* given) { return given ? std::optional<Tensor>(of(*given)) : std::nullopt; };
  try {
    const Tensor made = native(of(x), of(factors), if_any(scale), if_any(shift), if_any(residual), kernel,
                               std::vector<int64_t>(shape, shape + axes), samples);
    return aoti_torch_new_tensor_handle(made.get(), y);
  } catch (const std::exception&) {
    return AOTI_TORCH_FAILURE;
  }
}
#endif
