/// All of `Backend` but `name`.
macro_rules! backend {
    ($inner:ty) => {
        fn ad_enabled(device: &Self::Device) -> bool {
            <$inner>::ad_enabled(device)
        }

        fn memory_persistent_allocations<
            Output: Send,
            Input: Send,
            Func: Fn(Input) -> Output + Send,
        >(
            device: &Self::Device,
            input: Input,
            func: Func,
        ) -> Output {
            <$inner>::memory_persistent_allocations(device, input, func)
        }

        fn memory_cleanup(device: &Self::Device) {
            <$inner>::memory_cleanup(device)
        }

        fn seed(device: &Self::Device, seed: u64) {
            <$inner>::seed(device, seed)
        }

        fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
            <$inner>::sync(device)
        }

        fn staging<'a, Iter>(data: Iter, device: &Self::Device)
        where
            Iter: Iterator<Item = &'a mut TensorData>,
        {
            <$inner>::staging(data, device)
        }

        fn supports_dtype(device: &Self::Device, dtype: DType) -> bool {
            <$inner>::supports_dtype(device, dtype)
        }

        fn dtype_usage(device: &Self::Device, dtype: DType) -> DTypeUsageSet {
            <$inner>::dtype_usage(device, dtype)
        }

        fn device_count(type_id: u16) -> usize {
            <$inner>::device_count(type_id)
        }
    };
}

pub(crate) use backend;
