/// All of `TransactionOps`.
macro_rules! transaction {
    ($inner:ty) => {
        fn tr_execute(
            transaction: TransactionPrimitive<Self>,
        ) -> impl Future<Output = Result<TransactionPrimitiveData, ExecutionError>> + Send {
            <$inner>::tr_execute(TransactionPrimitive::new(
                transaction.read_floats,
                transaction.read_qfloats,
                transaction.read_ints,
                transaction.read_bools,
            ))
        }
    };
}

pub(crate) use transaction;
