"""Running programs and SQL over topics on Spark: `moldau run` and `moldau sql` are made of this room.

    spark_session           one Spark, quiet, with our interpreter in its workers
    programs                what a program file is and how it is called
    writers, supervision    every query that a program starts is named, checkpointed, watched and started again
    failures                what a failure means, in one sentence, and whether trying again can help
    progress, metrics       how far each query is: rates, lag, state, watermark
    sql_text, sql_statements, sql_program   our few statements among Spark's SQL
    sql_query               one SELECT over topics
    brokers                 what is asked of brokers before Spark is there
    runner                  all of it for one program, from the first message to the exit code

It decides nothing about data: what is read, computed and written is the program's and Spark's business. It needs the
extra `moldau[spark]`, and is imported only by those who use it.
"""
