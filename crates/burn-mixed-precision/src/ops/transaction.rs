use core::future::Future;

use burn_backend::ops::{TransactionOps, TransactionPrimitive, TransactionPrimitiveData};
use burn_backend::{Backend, ExecutionError};

use super::host_read::{reads_full, widen};
use crate::{MixedPrecision, counter};

impl<B: Backend> TransactionOps<Self> for MixedPrecision<B> {
    fn tr_execute(
        transaction: TransactionPrimitive<Self>,
    ) -> impl Future<Output = Result<TransactionPrimitiveData, ExecutionError>> + Send {
        counter::host_read();
        let full: Vec<bool> = transaction.read_floats.iter().map(reads_full).collect();
        let transaction = TransactionPrimitive::<B>::new(
            transaction
                .read_floats
                .into_iter()
                .map(|tensor| tensor.inner)
                .collect(),
            transaction.read_qfloats,
            transaction.read_ints,
            transaction.read_bools,
        );
        async move {
            let mut data = B::tr_execute(transaction).await?;
            data.read_floats = data
                .read_floats
                .into_iter()
                .zip(full)
                .map(|(data, full)| if full { widen(data) } else { data })
                .collect();
            Ok(data)
        }
    }
}
