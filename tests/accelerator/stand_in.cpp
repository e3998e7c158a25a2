// Lets the autograd engine of a CPU build of torch run over tensors that say they lie on a GPU: a
// device guard whose streams and events do nothing, and hooks that know of one device.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
using c10::Device;
using c10::DeviceType;

struct StandInGuard : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return getDevice(); }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  c10::Stream getStream(Device) const noexcept override { return stream(); }
  c10::Stream getNewStream(Device, int = 0) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag)
      const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  static c10::Stream stream() {
    return c10::Stream(c10::Stream::DEFAULT, Device(DeviceType::CUDA, 0));
  }
};

struct StandInHooks : at::CUDAHooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};
}  // namespace

extern "C" void stand_in() {
  static StandInGuard guard;
  c10::impl::registerDeviceGuard(DeviceType::CUDA, &guard);
  // The hooks are made once and have no members: another class over the same memory replaces them.
  static_assert(sizeof(StandInHooks) == sizeof(at::CUDAHooksInterface));
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) StandInHooks();
}
